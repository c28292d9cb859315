"""Search in Chinese, which is written without spaces between words.

Sphinx's own needs a dictionary (jieba) to cut a text into words, and takes what a reader types for
one word: of "双重反向传播" neither piece is then found. Here the index has each character and each
pair of neighbours, and what is typed is found where all of its pairs are.
"""

import re

from sphinx.search.zh import SearchChinese

HAN = "\u4e00-\u9fff"


class SearchPairs(SearchChinese):
    language_name = "English"  # whose stemmer it is: Sphinx 9.0 looks for one of this name
    js_splitter_code = f"""
var splitQuery = (query) => (query.match(/[{HAN}]+|[a-zA-Z0-9_]+/g) || []).flatMap((run) =>
  /[{HAN}]{{3}}/.test(run) ? [...run.slice(1)].map((character, i) => run[i] + character) : [run]);
"""

    def split(self, text):
        latin = self.latin1_letters.findall(text)
        self.latin_terms.update(latin)
        pairs = re.findall(f"(?=([{HAN}]{{2}}))", text)
        return [*re.findall(f"[{HAN}]", text), *pairs, *latin]

    def word_filter(self, word):
        return bool(re.match(f"[{HAN}]", word)) or super().word_filter(word)


def setup(app):
    app.add_search_language(SearchPairs)
    return {"parallel_read_safe": True}
