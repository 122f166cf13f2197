#!/usr/bin/env bash
# Puts NVIDIA's CUDA 13 compiler and runtime into build/cuda, from the wheels on PyPI. It downloads
# 105 MB, takes 271 MB on disk, and needs neither root nor a GPU. It does nothing if the machine has an
# nvcc already. NVIDIA's licenses apply: build/cuda/nvidia/*/License.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# These versions are known to work together.
wheels=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
)
folder=build/cuda
prefix="$folder/nvidia/cu13"

if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -e "$folder/complete" ]; then
  exit 0
fi
echo "Fetching the CUDA compiler"
rm -rf "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary=:all: --target "$folder" "${wheels[@]}"
rm -rf "$folder/venv"
chmod +x "$prefix"/bin/* "$prefix"/nvvm/bin/*
ln -s lib "$prefix/lib64"  # nvcc searches there
# Linkers ask for names without a version.
for library in "$prefix"/lib/*.so.*; do
  name="$(basename "$library")"
  ln -sf "$name" "$prefix/lib/${name%%.so.*}.so"
done
"$prefix/bin/nvcc" --version | tail -n 2 | head -n 1
touch "$folder/complete"
