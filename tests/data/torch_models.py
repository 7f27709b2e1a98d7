"""The models of ddptrain in PyTorch, under the same names. Needs torch; resnet needs torchvision, gpt2 transformers."""
import drawn
import torch
import torch.nn.functional as F


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(drawn.SIDE**2, 48)
        self.fc2 = torch.nn.Linear(48, 16)
        self.fc3 = torch.nn.Linear(16, drawn.CLASSES)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Cnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = torch.nn.Linear(64 * (drawn.SIDE // 4) ** 2, 128)
        self.fc2 = torch.nn.Linear(128, drawn.CLASSES)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class ResNet20(torch.nn.Module):
    """He et al. 2016, section 4.2, with 1x1 shortcuts, of torchvision's BasicBlock."""

    def __init__(self, channels=3):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.relu = torch.nn.ReLU()
        self.layer1 = self.stage(16, 16, 1)
        self.layer2 = self.stage(16, 32, 2)
        self.layer3 = self.stage(32, 64, 2)
        self.fc = torch.nn.Linear(64, drawn.CLASSES)

    @staticmethod
    def stage(inputs, width, stride):
        from torchvision.models.resnet import BasicBlock

        shortcut = None
        if inputs != width:
            shortcut = torch.nn.Sequential(torch.nn.Conv2d(inputs, width, 1, stride, bias=False), torch.nn.BatchNorm2d(width))
        return torch.nn.Sequential(BasicBlock(inputs, width, stride, shortcut), BasicBlock(width, width), BasicBlock(width, width))

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def resnet18():
    import torchvision

    model = torchvision.models.resnet18(num_classes=drawn.CLASSES)
    model.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    return model


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=drawn.VOCAB, n_positions=drawn.CONTEXT, n_embd=64, n_layer=2, n_head=2))


def make(name):
    return {"mlp": Mlp, "cnn": Cnn, "resnet18": resnet18, "resnet20": lambda: ResNet20(1), "gpt2": gpt2}[name]()


def shapes_of(model):
    """[(name, shape)...] of what ddptrain has: a tied matrix once, no counters of batches."""
    return [(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()
            if not name.endswith("num_batches_tracked") and name != "lm_head.weight"]


def logits_of(model, x):
    """x: NumPy, as drawn.model_input() makes it. @return float64, NumPy"""
    model = model.double().eval()
    with torch.no_grad():
        if x.dtype.kind == "i":
            return model(input_ids=torch.from_numpy(x).long()).logits.numpy()
        return model(torch.from_numpy(x).double()).numpy()
