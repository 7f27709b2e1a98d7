"""Writes tests/data/resnet_names.txt: names and shapes of torchvision's resnet18 and resnet50, one tensor a line. Needs torch and
torchvision (made with torch 2.13, torchvision 0.29); nothing else reads this script.
"""
import pathlib

import torchvision


def write_names(path):
    with open(path, "w") as file:
        for depth in (18, 50):
            for name, tensor in getattr(torchvision.models, f"resnet{depth}")().state_dict().items():
                if not name.endswith("num_batches_tracked"):
                    print(depth, name, *tensor.shape, file=file)


if __name__ == "__main__":
    write_names(pathlib.Path(__file__).resolve().parent / "resnet_names.txt")
