"""One run spread over ranks: mesh, tensor-parallel layers, pipeline, data parallelism with ZeRO."""
