"""A JupyterHub for a rehearsal: started, used over its own pages and interface, and stopped."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid

import psutil
import requests
import websocket
from editions.packages import package

MARK = "DOUBLE_BACKWARD_REHEARSAL"  # in the environment of every process that a rehearsal starts
HUB = """\
import secrets, sys
from jupyterhub.auth import Authenticator
password, token = sys.stdin.read().split()
class OnePassword(Authenticator):
    async def authenticate(self, handler, data):
        right = secrets.compare_digest(data["password"].encode(), password.encode())
        return data["username"] if right else None
c.JupyterHub.authenticator_class = OnePassword
c.Authenticator.allowed_users = {learners!r}
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {home!r}
c.Spawner.args = {arguments!r}
c.Spawner.environment = {environment!r}
c.Spawner.start_timeout = 300
c.JupyterHub.concurrent_spawn_limit = 0
c.ConfigurableHTTPProxy.command = {proxy!r}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JupyterHub.services = [{{"name": "rehearsal", "api_token": token}}]
c.JupyterHub.load_roles = [{{
    "name": "rehearsal",
    "services": ["rehearsal"],
    "scopes": ["admin:users", "admin:servers", "admin:server_state", "access:servers", "tokens"],
}}]
c.Application.log_level = "ERROR"
"""


class Hub:
    """On 127.0.0.1, with the simple spawner, for these learners alone.

    They share a random password. The hub gets it, and the token that starts their servers, through
    a pipe, so that no file, no command and no environment holds them.
    """

    def __init__(self, folder, learners):
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.password, self.token = secrets.token_hex(32), secrets.token_hex(32)
        port, hub_port, proxy_port = free_ports(3)
        self.url = f"http://127.0.0.1:{port}"
        self.process = None
        environment = {
            MARK: self.mark,
            "OMP_NUM_THREADS": "1",
            "IPYTHONDIR": str(folder / "ipython"),
        }
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        config = HUB.format(
            port=port,
            hub_port=hub_port,
            proxy_port=proxy_port,
            home=str(folder / "{username}"),
            arguments=["--allow-root"] if root else [],
            environment=environment,
            proxy=[
                "node",
                str(package("configurable-http-proxy", "bin", "configurable-http-proxy")),
            ],
            learners={learner.name for learner in learners},
        )
        (folder / "config.py").write_text(config, encoding="utf-8")

    def start(self, seconds):
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "config.py"],
                cwd=self.folder,
                env={**os.environ, MARK: self.mark, "PATH": path()},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with contextlib.suppress(BrokenPipeError), self.process.stdin as pipe:
            pipe.write(f"{self.password} {self.token}".encode())
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                requests.get(f"{self.url}/hub/health", timeout=5).raise_for_status()
                return
            except requests.RequestException:
                time.sleep(0.3)
        last = ((self.folder / "log").read_text().strip().splitlines() or ["nothing"])[-1]
        sys.exit(f"The hub did not start within {seconds} seconds; its last words: {last}")

    def sign_in(self, learner, deadline):
        """Through the page that people see; then start their server."""
        browser = requests.Session()
        browser.get(f"{self.url}/hub/login", timeout=30)
        form = {"username": learner.name, "password": self.password}
        form["_xsrf"] = browser.cookies["_xsrf"]
        answer = browser.post(f"{self.url}/hub/login?next=/hub/home", data=form, timeout=30)
        if not answer.ok or answer.url != f"{self.url}/hub/home":
            raise RuntimeError(f"signing in ended at {answer.url} with {answer.status_code}")
        self.ask("post", f"/hub/api/users/{learner.name}/server")
        while not (server := self.server(learner)).get("ready"):
            if time.monotonic() > deadline:
                raise TimeoutError("the server did not start in time")
            time.sleep(0.5)
        learner.pid = server["state"]["pid"]
        learner.kernel = self.ask("post", f"/user/{learner.name}/api/kernels").json()["id"]

    def server(self, learner):
        return self.ask("get", f"/hub/api/users/{learner.name}").json()["servers"].get("", {})

    def ask(self, method, address):
        headers = {"Authorization": f"token {self.token}"}
        answer = requests.request(method, self.url + address, headers=headers, timeout=60)
        answer.raise_for_status()
        return answer

    def run_lesson(self, learner, deadline):
        """Run every cell in the learner's kernel, as their browser would ask for it."""
        started = time.monotonic()
        address = f"{self.url}/user/{learner.name}/api/kernels/{learner.kernel}/channels"
        channel = websocket.create_connection(
            address.replace("http:", "ws:"),
            header=[f"Authorization: token {self.token}"],
            timeout=max(1, deadline - started),
        )
        try:
            for cell in learner.cells:
                error = execute(channel, cell.source, deadline)
                if error and "raises-exception" not in cell.metadata.get("tags", []):
                    learner.failures.append(error)
                    break
        finally:
            channel.close()
            learner.seconds = time.monotonic() - started
        print(f"  {learner.name} is through: {learner.lesson}, {learner.seconds:.0f} s", flush=True)

    def stop(self):
        """Ask the hub to end its servers and its proxy, then end whatever is left of it."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        left = marked(self.mark)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)


def execute(channel, source, deadline):
    """Run one cell; return None, or the last line of its error."""
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "rehearsal"}
    header |= {"username": "", "version": "5.3"}
    content = {"code": source, "silent": False, "stop_on_error": False, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    channel.send(json.dumps(message | {"channel": "shell", "buffers": []}))
    while time.monotonic() < deadline:
        channel.settimeout(max(1, deadline - time.monotonic()))
        try:
            answer = json.loads(channel.recv())
        except websocket.WebSocketTimeoutException:
            break
        mine = answer["parent_header"].get("msg_id") == header["msg_id"]
        if mine and answer["msg_type"] == "execute_reply":
            content = answer["content"]
            return None if content["status"] == "ok" else f"{content['ename']}: {content['evalue']}"
    raise TimeoutError("the lesson did not end in time")


def path():
    """With the course's `dot`, last, as its own kernels have it."""
    return os.environ.get("PATH", os.defpath) + os.pathsep + os.path.dirname(sys.executable)


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def marked(mark):
    """The processes that carry the mark of this rehearsal."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            pass
    return found
