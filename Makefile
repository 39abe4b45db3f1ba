# Everything a person needs; `make help` lists it. Binaries land in build/<preset>/bin.
SHELL := /bin/bash
BIN := build/release/bin
PREFIX ?= /usr/local
PYTHON = $(shell cmake/deps.sh --python)

.PHONY: help deps deps-gpu build demo test test-thorough test-gpu test-cluster images images-gpu test-images sanitize sanitize-without-torch sanitize-threads bench docs verify tidy generate format install release clean

help: ## Lists the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

deps: ## Installs what is missing: Debian packages, the pinned LibTorch, readers for the tests
	@cmake/deps.sh

build/release/build.ninja: | deps
	@cmake --preset release >/dev/null

deps-gpu: deps ## CUDA's libraries for a machine with GPUs (2 GB)
	@cmake/deps.sh --gpu

build: deps build/release/build.ninja ## Builds the programs
	@echo "building (the first time takes some minutes)"
	@cmake --build --preset release

demo: deps build/release/build.ninja ## Runs a TrainingJob on this machine: two workers train, the in-context return is printed
	@cmake --build --preset release --target trainyard trainyard-operator
	@tests/demo.sh

test: build ## Every test that needs no GPU and no cluster
	@ctest --test-dir build/release --output-on-failure --no-tests=error -j 4 || { python3 tests/failed.py build/release; exit 1; }

test-thorough: build ## The same with every case of every kind, and 5,000 seeds of the simulation
	@TRAINYARD_THOROUGH=1 TRAINYARD_SIM_SEEDS=1:5000 ctest --test-dir build/release --output-on-failure --no-tests=error -j 3

test-gpu: build ## What needs a GPU (after make deps-gpu): the device, the layers, and every task on it
	@tests/gpu.sh

test-cluster: build ## The operator against real Kubernetes components (needs Go 1.26 and root)
	@tests/cluster/run.sh

images: ## Builds the container images into build/images with podman, buildah or docker; docker/build.sh has options
	@docker/build.sh

images-gpu: ## The trainer's image for NVIDIA's GPUs (downloads 3 GB)
	@docker/build.sh trainer-cuda

test-images: ## What is in those images, and that they run (needs podman)
	@tests/images/run.sh

sanitize: deps sanitize-threads ## Unit tests under the address sanitizer, and without LibTorch under the thread sanitizer
	@cmake --preset asan >/dev/null && cmake --build --preset asan
	@ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build/asan --output-on-failure --no-tests=error -j 2

sanitize-without-torch: deps sanitize-threads ## The same without LibTorch's programs, which take half of its time
	@cmake --preset asan-without-torch >/dev/null && cmake --build --preset asan-without-torch
	@ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build/asan-without-torch --output-on-failure --no-tests=error -j 2 -E PpoLearning

sanitize-threads: deps ## Of those, the ones under the thread sanitizer
	@cmake --preset tsan >/dev/null && cmake --build --preset tsan
	@TSAN_OPTIONS=halt_on_error=1 ctest --test-dir build/tsan --output-on-failure --no-tests=error -j 3 -E PpoLearning

bench: build ## Figures against PyTorch on this machine; docs/benchmarks.md holds ours
	@LD_LIBRARY_PATH=$$(cmake/deps.sh --stubs) $(PYTHON) tests/bench/step_time.py
	@LD_LIBRARY_PATH=$$(cmake/deps.sh --stubs) $(PYTHON) tests/bench/pytorch_peers.py --short
	@$(PYTHON) tests/bench/startup.py
	@$(PYTHON) tests/bench/stalled_sink.py
	@$(PYTHON) tests/bench/operator_rates.py

docs: deps ## Builds the documentation's site into build/site; a dead link is an error
	@NO_MKDOCS_2_WARNING=1 "$$(cmake/deps.sh --docs)/bin/mkdocs" build --strict
	@$(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/docs/test_site.py tests/docs/test_browser.py
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"

verify: build ## Format, clang-tidy, and generated files up to date
	@git ls-files 'common/*.h' 'common/*.cc' 'trainer/*.h' 'trainer/*.cc' 'operator/*.h' 'operator/*.cc' 'tests/*.h' 'tests/*.cc' | xargs clang-format --dry-run --Werror
	@# The compile commands of tsan are the sources without LibTorch, several to a unit; `make tidy` takes the others as well, one by one.
	@cmake --preset tsan >/dev/null && cmake --build --preset tsan --target commit >/dev/null # a header that is made
	@sed -n 's/^  "file": "\(.*\)"$$/\1/p' build/tsan/compile_commands.json | grep -Ev "kernels_impl|stem_avx512|/tests/" | sort -u | xargs -P 2 -n 1 clang-tidy -p build/tsan --quiet --checks=-bugprone-suspicious-include 2>/dev/null
	@$(BIN)/trainyard config-reference | diff -u docs/config.md - || { echo "docs/config.md is out of date: run make generate"; exit 1; }
	@tools/cli_reference.sh $(BIN) | diff -u docs/cli.md - || { echo "docs/cli.md is out of date: run make generate"; exit 1; }
	@$(BIN)/trainyard-operator crd --reference | diff -u docs/api.md - || { echo "docs/api.md is out of date: run make generate"; exit 1; }
	@$(BIN)/trainyard-operator crd | diff -u manifests/crd.yaml - || { echo "manifests/crd.yaml is out of date: run make generate"; exit 1; }
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) charts/dashboards/build.py --check
	@diff -u manifests/crd.yaml charts/trainyard/crd.yaml || { echo "charts/trainyard/crd.yaml is out of date: run make generate"; exit 1; }
	@charts/render.sh --check
	@$(PYTHON) charts/values_table.py
	@$(PYTHON) tests/planted/plant.py --check

tidy: build ## clang-tidy over every source, LibTorch's translation units too: about ten minutes more than in verify
	@# Not kernels_impl.cc and stem_avx512_bf16.cc, which are for GCC, and parallel_for.cc, which needs GCC's omp.h
	@sed -n 's/^  "file": "\(.*\)"$$/\1/p' build/release/compile_commands.json | grep -Ev "kernels_impl|stem_avx512|parallel_for|/tests/" | sort -u | \
		xargs -P 2 -n 4 clang-tidy -p build/release --quiet 2>/dev/null

generate: build ## Writes the generated files: command line, configuration and API reference, CRD, dashboards, plain manifests, the chart's page
	@$(BIN)/trainyard config-reference > docs/config.md
	@tools/cli_reference.sh $(BIN) > docs/cli.md
	@$(BIN)/trainyard-operator crd --reference > docs/api.md
	@$(BIN)/trainyard-operator crd > manifests/crd.yaml
	@cp manifests/crd.yaml charts/trainyard/crd.yaml
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) charts/dashboards/build.py
	@charts/render.sh
	@$(PYTHON) charts/values_table.py --write

format: ## Formats the sources
	@git ls-files 'common/*.h' 'common/*.cc' 'trainer/*.h' 'trainer/*.cc' 'operator/*.h' 'operator/*.cc' 'tests/*.h' 'tests/*.cc' | xargs clang-format -i

install: build ## Installs programs, completions and manual pages into PREFIX (/usr/local)
	@cmake --install build/release --prefix $(PREFIX)

release: ## Makes the files of a release in build/dist; VERSION_CHECK=1 only says whether one may be made (docs/releasing.md)
	@tools/release.sh $(if $(VERSION_CHECK),--check)

clean: ## Removes what was built
	@rm -rf build
