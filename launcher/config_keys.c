#include "launcher/config_internal.h"

#define AT(member)   offsetof(ddp_config_t, member)
#define DDP_KEY_MANY 4294967295.0 /* 2^32 - 1 */

#define COUNT(section, name, value, min, max, unit, only, help)                                              \
    {                                                                                                        \
#section, #name, KEY_COUNT, AT(section.name), value, min, max, false, false, NULL, unit, only, help  \
    }
#define REAL(section, name, value, min, max, unit, only, help)                                               \
    {                                                                                                        \
#section, #name, KEY_REAL, AT(section.name), value, min, max, false, false, NULL, unit, only, help   \
    }
#define AUTO(section, name, max, unit, only, help)                                                           \
    {                                                                                                        \
#section, #name, KEY_COUNT, AT(section.name), "auto", 1, max, false, true, NULL, unit, only, help    \
    }
#define TEXT(section, name, value, only, help)                                                               \
    {                                                                                                        \
#section, #name, KEY_TEXT, AT(section.name), value, 0, 0, false, false, NULL, "", only, help         \
    }
#define FRACTION(section, name, value, only, help)                                                           \
    {                                                                                                        \
#section, #name, KEY_REAL, AT(section.name), value, 0, 1, true, false, NULL, "", only, help          \
    }
#define CHOICE(section, name, value, choices, only, help)                                                    \
    {                                                                                                        \
#section, #name, KEY_CHOICE, AT(section.name), value, 0, 0, false, false, choices, "", only, help    \
    }

/* The table. Choices stand in the order of their enums: nn/model.h, kernels/ops.h, io/dataset.h,
 * io/tokens.h, kernels/optim.h, nn/schedule.h, kernels/device.h, ddp/reducer.h, dp_compat/data_parallel.h. */
const ddp_key_t ddp_keys[] = {
    CHOICE(model, kind, "cnn", "mlp|cnn|gpt2|resnet", NULL,
           "of pictures: cnn (two 3x3 convolutions and two full layers), mlp (full layers), resnet; of "
           "tokens: gpt2"),
    {"model", "hidden", KEY_SIZES, AT(model.hidden), "[512, 512]", 1, 65536, false, false, "[512, 512]", "",
     "model.kind=mlp", "widths of the hidden layers, at most 16"},
    FRACTION(model, dropout, "0", NULL, "share of activations dropped in training"),
    CHOICE(
        model, conv, "auto", "auto|direct|winograd2|winograd4", "model.kind=cnn|resnet",
        "3x3 convolutions of stride 1 with at least 16 channels: direct, or by Winograd in tiles of 2x2 or "
        "4x4, with 2.25 or 4 times fewer multiplications; auto: 4x4 where it saves half of them"),
    COUNT(model, depth, "20", 1, 1000, "layers", "model.kind=resnet",
          "20, 32, 44, 56 or 110 for small pictures as CIFAR's; 18, 34, 50 or 101, as in torchvision, for "
          "large ones. Batch normalisation is over a micro-batch"),
    CHOICE(model, preset, "none", "none|124m|355m|774m|1558m|small|tiny", "model.kind=gpt2",
           "what of the next five is not stated: GPT-2's four sizes, small (4 layers, 4 heads, 256 channels, "
           "context 256) or tiny (2, 2, 64, 32); none: as small"),
    AUTO(model, layers, 96, "", "model.kind=gpt2", "blocks of attention and mlp; auto: of the preset"),
    AUTO(model, heads, 65536, "", "model.kind=gpt2", "of attention; auto: of the preset"),
    AUTO(model, channels, 65536, "", "model.kind=gpt2",
         "values of a token, a multiple of heads; auto: of the preset"),
    AUTO(model, context, 1 << 20, "tokens", "model.kind=gpt2",
         "of a sequence, which is a sample; auto: of the preset"),
    AUTO(model, vocab, 1 << 24, "tokens", "model.kind=gpt2",
         "there are; auto: 256 (bytes) for text, else 50257, GPT-2's"),

    CHOICE(data, kind, "auto", "fashion-mnist|idx|shapes|cifar10|cifar100|hdf5|tokens|text|auto", NULL,
           "auto: for pictures idx where path is set, else fashion-mnist where it is installed, else shapes "
           "(drawn); for gpt2 tokens where path is such a file by its first bytes or name, else text (each "
           "byte a token)"),
    TEXT(data, path, "\"\"", NULL,
         "folder with the four IDX files (.gz or not), or with CIFAR's .bin files; the HDF5 file; text or "
         "token shards, a file or a pattern such as data/*.bin; empty: /usr/share/datasets/fashion-mnist"),
    TEXT(data, test_path, "\"\"", "data.kind=tokens|text",
         "file or pattern of the test sequences; empty: val_fraction decides"),
    CHOICE(
        data, format, "auto", "llmc|uint16|uint32|hdf5|auto", "data.kind=tokens",
        "llmc: shards of llm.c; hdf5: an array in an HDF5 file; others: numbers and nothing else. auto: llmc "
        "and hdf5 by the first bytes, else by the name: .bin .u16 .uint16, .u32 .uint32"),
    TEXT(
        data, tokens, "tokens", "data.kind=tokens",
        "data set of an HDF5 file, [tokens] or [rows, tokens] of integers; no sequence goes from row to row"),
    TEXT(data, test_tokens, "\"\"", "data.kind=tokens",
         "data set of the test sequences; empty: as tokens in test_path, or val_fraction decides"),
    COUNT(data, samples, "0", 0, DDP_KEY_MANY, "samples", NULL, "training samples; 0: all (shapes: 20000)"),
    COUNT(data, test_samples, "0", 0, DDP_KEY_MANY, "samples", NULL, "test samples; 0: all (shapes: 4000)"),
    COUNT(data, seed, "1", 0, DDP_KEY_MANY, "", "data.kind=shapes", "of the drawn pictures"),
    CHOICE(data, augment, "none", "none|pad-crop-flip", NULL,
           "training pictures; pad-crop-flip: moved by up to 4 pixels, mirrored or not; drawn for each "
           "sample and epoch"),
    TEXT(data, images, "images", "data.kind=hdf5",
         "data set [samples, height, width], [samples, height, width, channels] or [samples, features], "
         "uint8 or float32"),
    TEXT(data, labels, "labels", "data.kind=hdf5", "data set [samples] of integers"),
    TEXT(data, test_images, "\"\"", "data.kind=hdf5",
         "data set of the test samples; empty: val_fraction decides"),
    TEXT(data, test_labels, "\"\"", "data.kind=hdf5", "their labels"),
    FRACTION(data, val_fraction, "0.1", "data.kind=hdf5|tokens|text",
             "the last samples of the data, this share of them, are the test samples"),

    COUNT(train, epochs, "3", 1, 1e6, "epochs", NULL, "passes over the training samples"),
    COUNT(train, steps, "0", 0, DDP_KEY_MANY, "steps", NULL, "stop after so many steps; 0: epochs decides"),
    COUNT(train, batch, "128", 1, 1 << 24, "samples", NULL,
          "samples (gpt2: sequences) of one step, over all ranks together"),
    AUTO(
        train, micro_batch, 1 << 24, "samples", NULL,
        "samples a rank takes through the model at a time; auto: a 16th of batch, at most 64. Results depend "
        "on it, not on the number of ranks; ranks <= batch / micro_batch"),
    COUNT(train, seed, "1", 0, DDP_KEY_MANY, "", NULL, "of initial weights, sample order and dropout"),
    COUNT(train, log_every, "50", 1, DDP_KEY_MANY, "steps", NULL,
          "between two step events and progress lines"),
    COUNT(train, eval_every, "0", 0, DDP_KEY_MANY, "steps", NULL,
          "between two evaluations on the test samples; 0: after each epoch"),
    COUNT(train, sample_tokens, "0", 0, 1 << 16, "tokens", "data.kind=text",
          "that gpt2 writes into the log after each evaluation (temperature 0.8, of the 40 likeliest)"),
    CHOICE(
        train, precision, "float32", "float32|bf16|tf32|fp16", NULL,
        "bf16: products, convolutions and attention round what goes in to bfloat16 and add up in float32; "
        "weights, sums, norms and loss stay float32. On a CPU fast with AVX-512-BF16, emulated without it. "
        "tf32 and fp16, the same with other numbers, are for ddp.device cuda"),
    CHOICE(train, recompute, "none", "none|blocks", "model.kind=gpt2|resnet",
           "blocks: backward runs each block again instead of keeping what is inside: less memory, about a "
           "third more time, the same bits"),
    {"train", "graphs", KEY_BOOL, AT(train.graphs), "false", 0, 0, false, false, NULL, "", "ddp.device=cuda",
     "operations that come in the same way in each step go to the GPU as CUDA graphs, with the same bits: "
     "the "
     "host does not launch each kernel"},
    REAL(train, peak_gflops, "0", 0, 1e9, "GFLOP/s", NULL,
         "of one rank, what mfu in step events is a share of; 0: measured at start, by a matrix product "
         "of train.precision"),
    CHOICE(
        train, mode, "ddp", "ddp|dp", NULL,
        "ddp: a process (rank) for each device, started by mpirun; dp: one process with a thread for each of "
        "dp.devices, as torch.nn.DataParallel"),
    {"train", "trace", KEY_BOOL, AT(train.trace), "false", 0, 0, false, false, NULL, "", NULL,
     "metrics.jsonl gets the timeline of the last step, for every rank or device, and trace.json has it for "
     "Perfetto"},
    CHOICE(train, nonfinite, "stop", "stop|skip", NULL,
           "a loss or gradient that is not finite ends the run, or its step changes nothing"),
    {"train", "freeze", KEY_WORDS, AT(train.freeze), "[]", 0, 0, false, false, "[\"conv1.*\", \"fc?.bias\"]",
     "", NULL, "parameters that are not trained, by name or pattern, as in [\"conv1.*\"]"},

    CHOICE(optimizer, kind, "adamw", "sgd|adamw", NULL, "as in PyTorch"),
    REAL(optimizer, lr, "0.001", 0, 1e6, "", NULL, "learning rate after warm-up"),
    FRACTION(optimizer, beta1, "0.9", "optimizer.kind=adamw", "decay of the mean of gradients"),
    FRACTION(optimizer, beta2, "0.999", "optimizer.kind=adamw", "decay of the mean of squared gradients"),
    REAL(optimizer, eps, "1e-08", 0, 1, "", "optimizer.kind=adamw", "added to the root of the second mean"),
    REAL(optimizer, weight_decay, "0.01", 0, 1e6, "", NULL, "adamw: decoupled; sgd: added to the gradient"),
    FRACTION(optimizer, momentum, "0", "optimizer.kind=sgd", "of sgd"),
    {"optimizer", "nesterov", KEY_BOOL, AT(optimizer.nesterov), "false", 0, 0, false, false, NULL, "",
     "optimizer.kind=sgd", "Nesterov's form of momentum"},
    CHOICE(optimizer, decay, "auto", "all|matrices|auto", NULL,
           "what weight_decay is for; matrices: no biases and no norms. auto: matrices for gpt2, else all"),
    REAL(optimizer, clip_norm, "0", 0, 1e30, "", NULL, "clip gradients to this global norm; 0: do not"),
    {"optimizer", "shard", KEY_BOOL, AT(optimizer.shard), "false", 0, 0, false, false, NULL, "",
     "ddp.backend=nccl",
     "moments are cut among the ranks (ZeRO-1); backend host has one copy for a machine anyway"},

    CHOICE(schedule, kind, "cosine", "constant|linear|cosine|step|wsd", NULL,
           "of the learning rate; linear and cosine fall to min_ratio * lr at the last step"),
    COUNT(schedule, warmup_steps, "0", 0, DDP_KEY_MANY, "steps", NULL, "linear rise from 0 to lr"),
    REAL(schedule, min_ratio, "0", 0, 1, "", NULL, "of lr, at the end of linear, cosine and wsd"),
    COUNT(schedule, step_size, "0", 0, DDP_KEY_MANY, "steps", "schedule.kind=step",
          "times gamma after so many steps; 0: after each epoch"),
    REAL(schedule, gamma, "0.1", 0, 1, "", "schedule.kind=step", "factor"),
    COUNT(schedule, decay_steps, "0", 0, DDP_KEY_MANY, "steps", "schedule.kind=wsd",
          "linear fall over the last steps; 0: the last fifth"),

    CHOICE(
        ddp, device, "auto", "cpu|cuda|auto", NULL,
        "what a rank computes on: cpu (a core), or cuda (the GPU of its number on the machine, of those that "
        "CUDA_VISIBLE_DEVICES leaves). auto: cuda where this build has it and every rank sees one"),
    {"ddp", "share_gpu", KEY_BOOL, AT(ddp.share_gpu), "false", 0, 0, false, false, NULL, "",
     "ddp.device=cuda", "several ranks may have the same GPU, to try things out"},
    CHOICE(
        ddp, backend, "auto", "auto|host|nccl", NULL,
        "what sums gradients: host (shared memory, and MPI between machines), or nccl (the GPUs themselves). "
        "auto: nccl with ddp.device cuda where it can be loaded, else host"),
    AUTO(ddp, max_ctas, 32, "", "ddp.backend=nccl",
         "multiprocessors that NCCL may take from the kernels; auto: its own choice"),
    REAL(ddp, bucket_cap_mb, "25", 0, 1 << 20, "MiB", NULL,
         "a bucket of gradients closes before it passes this; 0: one tensor each"),
    REAL(ddp, tail_bucket_kb, "1024", 0, 1 << 30, "KiB", NULL,
         "cap of the bucket that is ready last; 0: as others"),
    CHOICE(ddp, reduction, "auto", "exact|fast|auto", NULL,
           "exact: the same bits on any number of ranks; fast: sums in place, or in NCCL's order. auto: fast "
           "with ddp.backend nccl, else exact"),
    CHOICE(ddp, wire, "float32", "float32|bf16", NULL,
           "gradients as they go between ranks with ddp.backend nccl, between machines with host; bf16: half "
           "the "
           "bytes, rounded; with ddp.reduction fast"),
    CHOICE(ddp, exchange, "auto", "auto|direct|ring|halving|measured", "ddp.backend=host",
           "between machines: direct (each its part from all at once), ring, or recursive halving. measured: "
           "what the measured link makes fastest for a bucket's size. auto: direct; all others need "
           "ddp.reduction "
           "fast"),
    {"ddp", "interfaces", KEY_WORDS, AT(ddp.interfaces), "[]", 0, 0, false, false,
     "[\"eth0\", \"10.1.0.0/16\"]", "", NULL,
     "networks between machines, by interface or address, each on every host: for Open MPI's TCP, NCCL's "
     "sockets and "
     "the monitor; OMPI_MCA_btl_tcp_if_include and NCCL_SOCKET_IFNAME, where set, win. []: their own choice"},
    CHOICE(ddp, average, "samples", "samples|ranks", NULL,
           "samples: the mean over the batch; ranks: the mean of the ranks' means, as PyTorch DDP"),
    REAL(ddp, timeout_s, "60", 0.1, 86400, "s", NULL,
         "a rank that makes no progress for so long ends the run"),
    COUNT(ddp, checksum_every, "0", 0, DDP_KEY_MANY, "steps", NULL,
          "between two checks that all machines hold the same weights; 0: never"),
    {"ddp", "trace_buckets", KEY_BOOL, AT(ddp.trace_buckets), "false", 0, 0, false, false, NULL, "", NULL,
     "step events tell when each bucket of the step was ready, launched and done on rank 0"},
    {"ddp", "monitor", KEY_BOOL, AT(ddp.monitor), "true", 0, 0, false, false, NULL, "", NULL,
     "a thread of each rank names the rank that is lost, over machines too, and ends the others"},
    COUNT(ddp, straggler_every, "100", 0, DDP_KEY_MANY, "steps", "ddp.monitor=true",
          "between two straggler events: where each rank's time goes, and who is slowest; 0: none"),

    {"dp", "devices", KEY_WORDS, AT(dp.devices), "[]", 0, 0, false, false, "[0, 1]", "", "train.mode=dp",
     "ids, the first of which holds parameters and optimizer; a device is a core, or with ddp.device cuda a "
     "GPU. []: all of them"},
    CHOICE(dp, loss, "outside", "outside|inside|mean", "train.mode=dp",
           "outside: of the outputs gathered on output_device; inside: on each device, only sums are "
           "gathered, the same bits; mean: the mean of the devices' means, other gradients where parts are "
           "uneven"),
    TEXT(dp, output_device, "auto", "train.mode=dp",
         "one of devices, where outputs are gathered; auto: the first"),
    TEXT(dp, device_memory, "\"\"", "train.mode=dp",
         "what a device may hold: 512M, or a size for some of them, 0:512M,1:256M; empty: no limit"),

    COUNT(checkpoint, every_steps, "0", 0, DDP_KEY_MANY, "steps", NULL,
          "between two checkpoints; 0: every_epochs decides"),
    COUNT(checkpoint, every_epochs, "1", 0, 1e6, "epochs", NULL,
          "between two checkpoints, and one at the end; 0 in both: none"),
    COUNT(checkpoint, keep, "3", 2, 1e6, "files", NULL, "newest checkpoints that stay, besides the best"),
    REAL(checkpoint, timeout_s, "600", 1, 86400, "s", NULL,
         "a disk on which nothing of a checkpoint moves for so long ends the run, where it must be waited "
         "for"),
};
const size_t ddp_keys_count = sizeof(ddp_keys) / sizeof(ddp_keys[0]);
