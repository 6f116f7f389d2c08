"""Parts of benchmarks/predict_measured.py."""
