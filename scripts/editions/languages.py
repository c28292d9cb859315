"""What the editions and the website say of their own, by the folder that holds the lessons.

That is "" for English, and zh_CN, in notebooks/ as in every folder that is made from it.
"""

from pathlib import Path

WORDS = {
    "": {
        "lang": "en",
        "minutes": "{} minutes, {} with the exercises",
        "min": "{} min",
        "time": "{} min, from minute {} of {}",
        "turn": "Your turn",
        "stuck": "Where people get stuck.",
        "for you": "**For you: {} min.** {}",
        "solution": "**For you:** the solution of `{}`.",
        "expect": "**For you:** expect these.",
        "wrong": "**{}**: {}",
        "code": "Code",
        "next key": "On the next key:",
        "a graph": "A graph; the text below it says what it shows.",
        "part": "part {} of {}",
        "part of": "{} of the graph before: {}",
        "map": "The whole graph without its words; the frame shows which part this is.",
        "colab": "Open in Colab",
        "run": "Run it on Colab",
        "download": "Download this notebook (it brings all it needs)",
        "first": "Download lesson 1",
        "edit": "Edit",
        "lessons": "The lessons",
        "pages": "To look things up",
        "reveal": "Output and answer",
    },
    "zh_CN": {
        "lang": "zh-CN",
        "answers": "check、hint 和 diagnose 从这里起也说中文",
        "minutes": "{} 分钟，连练习 {} 分钟",
        "min": "{} 分钟",
        "time": "{} 分钟，从第 {} 分钟开始，共 {} 分钟",
        "turn": "轮到你了",
        "stuck": "学员容易卡在哪里：",
        "for you": "**教师：{} 分钟。** {}",
        "solution": "**教师**：`{}` 的参考答案。",
        "expect": "**教师**：会有人这样写。",
        "wrong": "**{}**：{}",
        "code": "代码",
        "next key": "按下一个键出来：",
        "a graph": "一幅计算图；下面的文字说明图里有什么。",
        "part": "第 {} 部分，共 {} 部分",
        "part of": "前面那幅图的{}：{}",
        "map": "不带文字的整幅图；方框标出这是哪一部分。",
        "colab": "在 Colab 中打开",
        "run": "在 Colab 中运行",
        "download": "下载这个 notebook（需要的都在里面）",
        "first": "下载第 1 课",
        "edit": "修改译文",
        "lessons": "六课",
        "pages": "查阅",
        "reveal": "输出和答案",
    },
}


def lessons_in(notebooks: Path) -> list[Path]:
    """In English, then in the other languages."""
    return [path for folder in WORDS for path in sorted((notebooks / folder).glob("[0-9]_*.ipynb"))]


def language_of(lesson: Path) -> str:
    """The folder that a lesson is in, as WORDS names it."""
    return lesson.parent.name if lesson.parent.name in WORDS else ""
