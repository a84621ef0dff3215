"""GPU kernels in Triton, each behind one function with a PyTorch fallback. They know tensors."""
