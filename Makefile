# The README names these first; for Windows docs/SETUP.md has lines without make.
PYTHON ?= python3
RUN := .venv/bin/python

# An environment for this course alone: neither other modules, nor other rules for running them.
# Compiled modules are stored, because set-up leaves that to whoever imports them first.
unexport PYTHONPATH PYTHONHOME PYTHONSAFEPATH PYTHONOPTIMIZE PYTHONWARNINGS
unexport PYTHONDONTWRITEBYTECODE

# Only as an argument of make: desktops have a variable of this name for themselves.
ifeq ($(origin LANGUAGE),command line)
export COURSE_LANGUAGE := $(LANGUAGE)
endif

.PHONY: lab fresh test check torch matrix refresh copies translations seen preview workshop site release rehearse survey newest compiled \
        environment environment+site environment+release environment+workshop environment+test+workshop \
        environment+test+workshop+site+release

lab: environment
	@$(RUN) scripts/open_lab.py

fresh: environment
	@$(RUN) scripts/lesson_copies.py $(LESSON)

test: environment+test+workshop
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The copies for Colab are run by `make torch`, on the torch that Colab will have.
check: environment+test+workshop+site+release
	@cd scripts && ../$(RUN) -c "from editions.packages import package; package()"
	$(RUN) -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder \
	  --deselect tests/test_colab.py::test_copy_runs_where_there_is_nothing_of_ours
	@CELLS=here $(RUN) scripts/matrix.py --unwritten

# The tool, the lessons and a copy for Colab on the newest torch that the registry has today; 5 GB.
torch: environment+test+workshop
	@CELLS="newest PyTorch" $(RUN) scripts/matrix.py --unwritten

matrix: environment+test+workshop
	@CELLS="$(CELLS)" $(RUN) scripts/matrix.py

refresh: environment+test+workshop
	@$(RUN) scripts/refresh.py $(LESSON)

# All that is made from the lessons' words: minutes, the lessons in Chinese, the copies for Colab.
copies: translations
	@cd scripts && ../$(RUN) -m editions.colab

translations: environment+test+workshop
	@cd scripts && ../$(RUN) -m editions.minutes
	@cd scripts && ../$(RUN) -m editions.translated
	@cd scripts && ../$(RUN) -m editions.cheat_sheet

# After a look: PAGE, such as docs/GLOSSARY.zh-CN.md, says what its English page says today.
seen: environment+test+workshop
	@cd scripts && ../$(RUN) -m editions.seen $(PAGE)

preview: environment+test+workshop
	@$(RUN) scripts/preview_picture.py

workshop: environment+workshop
	@cd scripts && ../$(RUN) -m editions.workshop

site: environment+site
	@$(RUN) scripts/build_site.py

# The files for PyPI, in build/release; nothing is sent.
release: environment+release
	@$(RUN) scripts/matrix.py --outdated
	@rm -rf build/release
	@$(RUN) -m build --no-isolation --outdir build/release
	@$(RUN) -m twine check --strict build/release/*

rehearse: environment+workshop
	@$(RUN) scripts/rehearse.py $(LEARNERS)

# Published packages, in .survey, on top of what learning needs; half an hour or more, and 1 GB.
survey: environment+test+workshop
	@PYTHONPATH=scripts $(RUN) survey/environment.py
	@OMP_NUM_THREADS=1 .survey/bin/python -m survey $(FUNCTION)

# The newest releases beside the stored rows: says what is mended, wrong now, or gone.
newest: environment+test+workshop
	@PYTHONPATH=scripts $(RUN) survey/environment.py --newest
	@OMP_NUM_THREADS=1 .newest/bin/python -m survey --into build/newest
	@.newest/bin/python -m survey.newest build/newest

# PyTorch's own operations, compiled; the second line needs a C++ compiler.
compiled: environment+test+workshop
	@OMP_NUM_THREADS=1 $(RUN) -m survey.compiled aot_eager $(OPERATION)
	@OMP_NUM_THREADS=1 $(RUN) -m survey.compiled inductor $(OPERATION)

# What learning needs, and after each + an extra that comes when it is first asked for.
environment environment+site environment+release environment+workshop environment+test+workshop \
environment+test+workshop+site+release:
	@$(PYTHON) scripts/make_environment.py $(wordlist 2, 9, $(subst +, ,$@))
