"""Writes tests/data/logits.npz: names and shapes of the models of drawn.py in PyTorch, and their logits in float64. Needs torch,
torchvision, transformers and numpy (made with torch 2.13, torchvision 0.29, transformers 5.24); tests/launcher/export.py reads it.
"""
import pathlib

import drawn
import numpy as np
import torch
import torch_models


def main():
    arrays = {}
    for name in drawn.MODELS:
        model = torch_models.make(name)
        shapes = torch_models.shapes_of(model)
        weights = {k: torch.from_numpy(v) for k, v in drawn.model_weights(shapes).items()}
        model.load_state_dict(weights, strict=name != "gpt2")
        arrays[f"{name}.names"] = np.array([" ".join([k, *map(str, shape)]) for k, shape in shapes])
        logits = torch_models.logits_of(model, drawn.model_input(name))
        arrays[f"{name}.logits"] = drawn.kept(logits)
        float32 = torch_models.make(name)
        float32.load_state_dict(weights, strict=name != "gpt2")
        with torch.no_grad():
            x = torch.from_numpy(drawn.model_input(name))
            y = float32.eval()(x.long()).logits if name == "gpt2" else float32.eval()(x)
        print(name, len(shapes), "largest", np.abs(logits).max(), "float32 off by", np.abs(y.numpy() - logits).max())
    np.savez_compressed(pathlib.Path(__file__).resolve().parent / "logits.npz", **arrays)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
