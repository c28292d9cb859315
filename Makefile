# The README names these first; on Windows it gives the same lines without make.
PYTHON ?= python3
RUN := .venv/bin/python

.PHONY: lab fresh test check refresh workshop rehearse environment

lab: environment
	@$(RUN) scripts/open_lab.py

fresh: environment
	@$(RUN) scripts/lesson_copies.py $(LESSON)

test: environment
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m pytest -n 2 --dist loadfile

check: environment
	$(RUN) -m pytest -m slow

refresh: environment
	@$(RUN) scripts/refresh.py $(LESSON)

workshop: environment
	@cd scripts && ../$(RUN) -m editions.workshop

rehearse: environment
	@$(RUN) scripts/rehearse.py $(LEARNERS)

environment:
	@$(PYTHON) scripts/make_environment.py
