/* Logits of a file of weights, as the program computes them. Not a test: export.py compares them with
 * PyTorch's. Usage: test_logits WEIGHTS.h5 INPUT OUTPUT N HEIGHT WIDTH CHANNELS CLASSES
 * [section.key=value...] INPUT: float32 [N, HEIGHT, WIDTH, CHANNELS]; of a gpt2 (HEIGHT to CLASSES 0) int32
 * [N, model.context]. OUTPUT: float32 [N, CLASSES], or [N, model.context, model.vocab]. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/checkpoint.h"
#include "launcher/config.h"

#define WAIT_MS 120000

typedef struct program {
    size_t             n;
    ddp_model_config_t model;
    ddp_checkpoint_t  *checkpoint; /* owned, as all that follows */
    ddp_device_t      *device;
    ddp_stream_t      *stream;
    ddp_params_t      *params;
    ddp_model_t       *net;
    ddp_tape_t        *tape;
    void              *input;
} program_t;

static ddp_status_t configure(program_t *p, int argc, char **argv)
{
    ddp_status_t  status = DDP_OK;
    ddp_config_t *config = malloc(sizeof(*config));

    DDP_REQUIRE(config != NULL, DDP_ERR_NO_MEMORY, "no memory");
    DDP_REQUIRE(argc >= 9, DDP_ERR_CONFIG, "too few arguments");
    ddp_config_defaults(config);
    config->data.kind = DDP_DATA_SHAPES;
    for (int i = 9; i < argc; i++) {
        DDP_TRY(ddp_config_set(config, argv[i]));
    }
    DDP_TRY(ddp_config_resolve(config, false));
    p->model = ddp_config_model(config);
    p->n     = strtoul(argv[4], NULL, 10);
    if (p->model.kind != DDP_MODEL_GPT2) {
        p->model.height   = strtoul(argv[5], NULL, 10);
        p->model.width    = strtoul(argv[6], NULL, 10);
        p->model.channels = strtoul(argv[7], NULL, 10);
        p->model.classes  = strtoul(argv[8], NULL, 10);
    }
out:
    free(config);
    return status;
}

static ddp_status_t load(program_t *p, const char *path)
{
    ddp_status_t             status = DDP_OK;
    ddp_device_params_t      device = DDP_DEVICE_PARAMS_INIT;
    ddp_tape_params_t        tape   = DDP_TAPE_PARAMS_INIT;
    const ddp_tensor_desc_t *descs  = NULL;

    DDP_TRY(ddp_isa_check());
    device.isa = ddp_isa_detect();
    DDP_TRY(ddp_checkpoint_open(path, &p->checkpoint));
    DDP_TRY(ddp_device_create(&device, &p->device));
    DDP_TRY(ddp_stream_create(p->device, "compute", &p->stream));
    DDP_TRY(ddp_params_create(&p->params));
    DDP_TRY(ddp_model_create(&p->model, p->params, &p->net));
    DDP_TRY(ddp_params_allocate(p->params, ddp_device_allocator(p->device)));
    descs = ddp_params_descs(p->params);
    DDP_TRY(ddp_checkpoint_check_model(p->checkpoint, descs, ddp_params_count(p->params), NULL, 0));
    for (size_t i = 0; i < ddp_params_count(p->params); i++) {
        DDP_TRY(ddp_checkpoint_read(p->checkpoint, ddp_checkpoint_find(p->checkpoint, descs[i].name),
                                    DDP_CHECKPOINT_VALUES, 0, descs[i].count,
                                    ddp_params_value(p->params, i)));
    }
    tape.stream = p->stream;
    tape.params = p->params;
    DDP_TRY(ddp_tape_create(&tape, &p->tape));
out:
    return status;
}

static ddp_status_t read_input(program_t *p, const char *path)
{
    ddp_status_t status = DDP_OK;
    FILE        *file   = fopen(path, "rb");
    const bool   is_gpt = p->model.kind == DDP_MODEL_GPT2;
    const size_t count =
        p->n * (is_gpt ? p->model.context : p->model.height * p->model.width * p->model.channels);

    p->input = malloc(count * sizeof(float));
    DDP_REQUIRE(file != NULL && p->input != NULL && fread(p->input, sizeof(float), count, file) == count,
                DDP_ERR_IO, "'%s': %zu numbers are expected", path, count);
out:
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}

static ddp_status_t write_logits(program_t *p, const char *path)
{
    ddp_status_t           status   = DDP_OK;
    const ddp_tape_begin_t begin    = {.training = false};
    const size_t           shape[4] = {p->n, p->model.height, p->model.width, p->model.channels};
    FILE                  *file     = fopen(path, "wb");
    ddp_tensor_t          *images   = NULL;
    ddp_tensor_t          *logits   = NULL;

    DDP_TRY(ddp_tape_begin(p->tape, &begin));
    if (p->model.kind == DDP_MODEL_GPT2) {
        DDP_TRY(ddp_model_logits(p->net, p->tape, p->input, p->n, p->model.context, &logits));
    } else {
        DDP_TRY(ddp_tape_input(p->tape, p->input, 4, shape, &images));
        DDP_TRY(ddp_model_forward(p->net, p->tape, images, &logits));
    }
    DDP_TRY(ddp_stream_synchronize(p->stream, WAIT_MS));
    DDP_REQUIRE(file != NULL && fwrite(logits->data, sizeof(float), logits->count, file) == logits->count &&
                    fflush(file) == 0,
                DDP_ERR_IO, "'%s': cannot be written", path);
out:
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}

int main(int argc, char **argv)
{
    ddp_status_t status = DDP_OK;
    program_t    p      = {0};

    DDP_TRY(configure(&p, argc, argv));
    DDP_TRY(load(&p, argv[1]));
    DDP_TRY(read_input(&p, argv[2]));
    DDP_TRY(write_logits(&p, argv[3]));
out:
    if (status != DDP_OK) {
        fprintf(stderr, "test_logits: %s\n", ddp_error_line());
    }
    free(p.input);
    ddp_tape_destroy(&p.tape);
    ddp_model_destroy(&p.net);
    ddp_params_destroy(&p.params);
    ddp_stream_destroy(&p.stream);
    ddp_device_destroy(&p.device);
    ddp_checkpoint_close(&p.checkpoint);
    return status == DDP_OK ? 0 : 1;
}
