"""The words that stand for a picture, in Chinese: the website and the slides use them as `alt`.

They are stored in English, as the picture itself. Each line of them is one of the sentences below,
and so is what a picture says at each step.
"""

import copy
import re

NUMBERS = r"(-?[\d.]+(?:, -?[\d.]+)*)"
NAME = r"(\w+(?: #\d+)?)"
# Tried in this order, each on what those before it left.
SENTENCES = {
    r"^(F\(.*) at x = ([\d.]+): (.*)": r"\1，x = \2：\3",
    r"^no path cut: ": "一条路也没剪：",
    r"^expx and expnegx cut: ": "剪掉 expx 和 expnegx：",
    r"\. Right: every path is there\.$": "。正确：每条路都在。",
    r"\. Right here, though cut: what is missing adds up to 0\.$": (
        "。剪了，这里却是对的：缺少的加起来是 0。"
    ),
    r", and no error\. Right is (.+)\.$": r"，而且没有报错。正确的是 \1。",
    r"RuntimeError: no path is left\. This is the lucky case\.": (
        "RuntimeError：一条路也不剩。这是幸运的情况。"
    ),
    "^Formula$": "公式",
    "^Cut:$": "剪掉：",
    "^None, as Sinh$": "都不剪，即 Sinh",
    "^Both, as SinhBad$": "剪两条，即 SinhBad",
    "^right$": "正确",
    "^autograd adds up$": "autograd 加起来",
    "^lacks$": "缺少",
    r"Graph of (.+): (\d+) operations?, (\d+) (?:leaf|leaves)$": (
        r"\1 的计算图，\2 个运算，\3 个叶子张量"
    ),
    r"(.+) leads back to ([\w, ]+?)(?=,? ?\(|, but|$)": r"\1 通回 \2",
    r" \(a picture checks paths, not numbers\)": "（图检查的是路，不是数）",
    r", but a path is missing": "，但是少了一条路",
    r", but (\d+) paths are missing": r"，但是少了 \1 条路",
    r", but not through the guard": "，但不经过那个保护",
    r"(.+) is cut off: no graph leads from here to (.+)": r"\1 断开了，从这里没有计算图通到 \2",
    r"^forward$": "前向传播",
    r"^first backward$": "第一次反向传播",
    r"^second backward$": "第二次反向传播",
    r"(.+) keeps intermediates, (.+): autograd takes them for constants": (
        r"\1 留着中间结果 \2，autograd 把它们当作常数"
    ),
    r"; (\w+) lacks (.+)$": r"，\1 缺少 \2",
    r"no path from (.+) of (.+): taken for a constant": r"从 \2 的 \1 没有路，当作常数",
    r"a circle: (.+) holds (.+) on ctx, and (.+) holds (.+) as its grad_fn": (
        r"一个环：\1 在 ctx 上引用 \2，\3 又通过 grad_fn 引用 \4"
    ),
    r"The pass went past the guard of once_differentiable: nothing is raised": (
        "反向传播从 once_differentiable 的保护旁边过去，没有报错"
    ),
    r" +a leaf (?=\()": "：叶子张量 ",
    r" +a tensor (\(.*\)) without a graph": r"：没有计算图的张量 \1",
    r" +made by (\w+(?: #\d+)?) from (.+)": r"：由 \1 从 \2 算出",
    r" +made from (.+)": r"：从 \1 算出",
    r"keeps a tensor (\(.*?\)): ": r"留着一个张量 \1，",
    r"keeps (\w+): ": r"留着 \1，",
    r"; no graph leads on from here": "，从这里没有计算图再通出去",
    r": an input that needs no gradient, or an intermediate": (
        "，是不需要梯度的输入，或者中间结果"
    ),
    r"(?<=，)output\b": "它是输出",
    r"(?<=，)input\b": "它是输入",
    r"(?<=，)intermediate\b": "它是中间结果",
    r", on ctx as (\w+)": r"，在 ctx 上叫 \1",
    r", saved": "，已保存",
    r"(?<=，)saved": "已保存",
    r"nothing comes back to (.+)": r"没有东西传回给 \1",
    r"sends back to (.+): (.+)": r"传给 \1 的是 \2",
    r"comes back to (.+): (.+)": r"传回到 \1 的是 \2",
    rf"The pass starts at (.+) with {NUMBERS}\.$": r"反向传播从 \1 出发，带着 \2。",
    rf"\b{NUMBERS} for {NAME}": r"给 \2 的 \1",
    rf", and sends {NUMBERS} to {NAME}": r"，把 \1 传给 \2",
    rf"sends {NUMBERS} to {NAME}": r"把 \1 传给 \2",
    rf"(?:,| and) {NUMBERS} to {NAME}": r"，把 \1 传给 \2",
    r" gets ": " 收到",
    r"\.$": "。",
    r"\ba constant\b": "一个常数",
    r", (?=\w+ [^\d]|给|一个|[A-Za-z])": "、",
    r" and ": " 和 ",
    r"(?<=[一-龥]) (?=[一-龥])": "",
    "u over x from 0 to 3、rising from 0 to 1. The trained curve lies on SciPy's。": (
        "u 随 x 从 0 到 3 的曲线，从 0 升到 1。训练得到的曲线与 SciPy 的重合。"
    ),
    r"u over x from 0 to 3. The curve trained with sinh .*": (
        "u 随 x 从 0 到 3 的曲线。用 sinh 训练出来的落在解上；用 SinhBad 训练出来的"
        "远在它下面，只在两端附近与它相接。"
    ),
}


def in_chinese(words):
    return "\n".join(map(line_in_chinese, words.splitlines()))


def steps_in_chinese(data):
    """What a stepper goes by, see `stepper.Stepper`, with its titles and words in Chinese."""
    steps = [[[in_chinese(words), parts] for words, parts in way] for way in data.get("steps", [])]
    said = {"steps": steps} if steps else {}
    if "cuts" in data:
        said["cuts"] = cuts_in_chinese(data["cuts"])
    return data | said | {"titles": [in_chinese(title) for title in data["titles"]]}


def cuts_in_chinese(cuts):
    """The same of a figure whose paths can be cut, see `cut_paths.cut_a_path`."""
    cuts = copy.deepcopy(cuts)
    cuts["labels"] = list(map(in_chinese, cuts["labels"]))
    for points in cuts["pictures"].values():
        for told in points.values():
            for state in told["states"].values():
                state["words"] = in_chinese(state["words"])
    return cuts


def line_in_chinese(line):
    indent, line = re.match(r"( *)(.*)", line).groups()
    for pattern, chinese in SENTENCES.items():
        line = re.sub(pattern, chinese, line)
    return indent + line
