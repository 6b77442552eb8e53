# `make test` is all that CI runs. It installs what it needs (Debian 12/13, Ubuntu 24.04; root or sudo) and
# then needs nothing but the package registries.

CARGO ?= cargo
# A card that is there would be chosen where a test leaves the device open.
CARGO_TEST := $(if $(SAPIENS_TEST_CUDA),,CUDA_VISIBLE_DEVICES=) $(CARGO) test
# One set of features for everything, so that burn is compiled once.
FEATURES := gst-plugin-sapiensseg/fake-engine,sapiens-portable/full-size,sapiens-kernels/cuda-check
SAPIENSSEG_CLIPS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sapiensseg/clips
export SAPIENSSEG_CLIPS
SAPIENSSEG_CUDA ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sapiensseg/cuda
export SAPIENSSEG_CUDA

.PHONY: portable-cuda device-check help demo test check deps clips cuda-tools cuda-check ptx fmt clippy unit loom full-size full-size-all doc build train install clean

help:
	@echo "make demo       a clip of drawn people through the element: a video and a picture in demo/"
	@echo "                (make demo INPUT=clip.mp4 VARIANT=sapiens2-0.4b for yours, once its weights are fetched)"
	@echo "make build      the commands and the GStreamer plugin, optimised, in target/release"
	@echo "make install    both into your home: GStreamer's folder for your own plugins and ~/.local/bin"
	@echo "make test       everything that CI runs: format, lints, tests, full-size networks, documentation"
	@echo "make check      the same without the full-size networks and the thread models (some minutes less)"
	@echo "make full-size  0.3b and sapiens2-0.4b at 1024 x 768 against the authors' numbers (3 GB of memory)"
	@echo "make full-size-all   the kernels at every published size (an hour, 14 GB of memory)"
	@echo "make loom       every interleaving of the threads that meet in the element's queue"
	@echo "make ptx        the CUDA kernels' PTX, anew, after a change to kernels/cuda (no GPU needed)"
	@echo "make cuda-check   that PTX against its sources, and what the kernels need on every generation of cards"
	@echo "make cuda-tools   fetches what both and the CUDA tests need (NVRTC 12.0 and 13.5; 85 MB)"
	@echo "make device-check   checks and times the CUDA kernels and networks on this machine's NVIDIA card, PyTorch beside them"
	@echo "make train      the demo model's weights, anew: MINUTES of training on all cores"

test: check full-size loom

check: deps clips fmt cuda-check clippy portable-cuda unit doc

deps:
	@tools/install-deps.sh

clips: deps
	@tools/fetch-clips.sh

cuda-tools: deps
	@tools/fetch-cuda.sh

ptx: cuda-tools
	$(CARGO) run -q --locked -p sapiens-nvrtc -- ptx

cuda-check: cuda-tools
	$(CARGO) run -q --locked -p sapiens-nvrtc -- check
	$(CARGO) run -q --locked -p sapiens-nvrtc -- machine

fmt:
	$(CARGO) fmt --all --check

clippy: deps
	$(CARGO) clippy --workspace --all-targets --locked --features $(FEATURES) -- -D warnings

# burn on NVIDIA GPUs is in no build but one that asks for it.
portable-cuda: deps
	$(CARGO) clippy -p sapiens-model --locked --features portable-cuda -- -D warnings

# The full-size networks have a target of their own, and run alone.
unit: deps clips cuda-tools
	G_DEBUG=fatal-criticals $(CARGO_TEST) --workspace --locked --features $(FEATURES) -- --skip full_size_networks

full-size:
	$(CARGO_TEST) --workspace --locked --features $(FEATURES) --test full_size -- --nocapture --test-threads=1
	$(CARGO_TEST) --workspace --locked --features $(FEATURES) --lib -- --ignored --nocapture full_size_networks_agree

full-size-all:
	$(CARGO_TEST) --workspace --locked --features $(FEATURES) --lib -- --ignored --nocapture \
		full_size_networks_of_every full_size_networks_in_tiles

loom: deps
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom -p gst-plugin-sapiensseg --no-default-features --lib loom

doc: deps
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

build: deps
	$(CARGO) build --release --locked -p sapiens-cli -p gst-plugin-sapiensseg -p sapiens-examples

# What a machine with a card needs is copied there: this folder, and nothing else.
DEVICE_CHECK := target/device-check

device-check: deps
	$(CARGO) build --release --locked -p sapiens-device-check
	install -D -m 755 target/release/device-check tools/device-check/run.sh -t $(DEVICE_CHECK)
	install -D -m 644 tools/device-check/torch_operations.py tools/device-check/torch_networks.py -t $(DEVICE_CHECK)
	install -D -m 644 $(addprefix tools/peer_bench/,network.py cards.py weights.py) -t $(DEVICE_CHECK)/peer_bench
	@if [ -e /dev/nvidiactl ]; then $(DEVICE_CHECK)/run.sh; else \
		echo "no NVIDIA card here: copy $(DEVICE_CHECK) to a machine with one and run run.sh there"; fi

VARIANT ?= demo
DEMO_DIR ?= demo

demo: build
	@target/release/demo --output "$(DEMO_DIR)" --variant "$(VARIANT)" $(if $(INPUT),--input "$(INPUT)")

MINUTES ?= 90

train:
	$(CARGO) run --release --locked -p sapiens-training --bin train-demo -- --minutes $(MINUTES) --out training/run --export model/weights/demo.safetensors

# Where GStreamer looks for a user's own plugins; PLUGIN_DIR and BIN_DIR choose other folders.
PLUGIN_DIR ?= $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/gstreamer-1.0/plugins
BIN_DIR ?= $(HOME)/.local/bin

install: build
	install -D -m 755 target/release/libgstsapiensseg.so "$(PLUGIN_DIR)/libgstsapiensseg.so"
	install -D -m 755 target/release/sapiens "$(BIN_DIR)/sapiens"
	install -D -m 755 target/release/annotate "$(BIN_DIR)/sapiens-annotate"
	install -D -m 755 target/release/camera "$(BIN_DIR)/sapiens-camera"
	@echo "installed: $(PLUGIN_DIR)/libgstsapiensseg.so, and sapiens, sapiens-annotate, sapiens-camera in $(BIN_DIR)"

clean:
	$(CARGO) clean
