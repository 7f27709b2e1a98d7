/* Whole models with their loss on another tape, of some rows of what was gathered: as DataParallel does it.
 */
#include "nn/model.h"
#include "tests/nn/nn_other.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const ddp_tape_begin_t training = {.training = true, .seed = 4, .step = 1};

static const struct net {
    ddp_model_config_t config;
    ddp_precision_t    precision;
} nets[] = {
    {{.kind     = DDP_MODEL_MLP,
      .height   = 6,
      .width    = 6,
      .channels = 3,
      .classes  = 5,
      .n_hidden = 1,
      .hidden   = {33},
      .dropout  = 0.3F},
     DDP_PRECISION_FLOAT32},
    {{.kind = DDP_MODEL_MLP, .height = 6, .width = 6, .channels = 3, .classes = 1500}, DDP_PRECISION_FLOAT32},
    {{.kind = DDP_MODEL_CNN, .height = 12, .width = 12, .channels = 3, .classes = 5, .dropout = 0.3F},
     DDP_PRECISION_FLOAT32},
    {{.kind = DDP_MODEL_CNN, .height = 12, .width = 12, .channels = 3, .classes = 5}, DDP_PRECISION_BF16},
    {{.kind = DDP_MODEL_RESNET, .depth = 20, .height = 12, .width = 12, .channels = 3, .classes = 5},
     DDP_PRECISION_FLOAT32},
    {{.kind     = DDP_MODEL_GPT2,
      .layers   = 2,
      .heads    = 2,
      .channels = 32,
      .context  = 100,
      .vocab    = 1100,
      .dropout  = 0.2F},
     DDP_PRECISION_FLOAT32},
    {{.kind = DDP_MODEL_GPT2, .layers = 1, .heads = 2, .channels = 32, .context = 70, .vocab = 61},
     DDP_PRECISION_BF16}};

/* Samples of the micro-batches; gpt2 has 300, 200 and 200 rows of logits in them, or 210, 140 and 140. */
#define MICROS  3
#define SAMPLES 7
static const size_t micro_n[MICROS] = {3, 2, 2};

static float   pictures[SAMPLES * 12 * 12 * 3];
static int32_t words[SAMPLES * 100], targets[SAMPLES * 100];

static void fill_samples(const ddp_model_config_t *config)
{
    const size_t classes = config->kind == DDP_MODEL_GPT2 ? config->vocab : config->classes;

    nn_noise(pictures, COUNT(pictures), 3);
    for (size_t i = 0; i < COUNT(words); i++) {
        words[i]   = (int32_t)(i * 131 % classes);
        targets[i] = i % 6 == 1 ? -1 : (int32_t)(i * 37 % classes);
    }
}

/* A micro-batch from its first sample on: the loss if stats_p is given, else the logits. */
static ddp_status_t run_model(ddp_model_t *model, const ddp_model_config_t *config, ddp_tape_t *tape,
                              size_t first, size_t n, ddp_tensor_t **logits_p, ddp_loss_stats_t **stats_p)
{
    const ddp_tape_begin_t begin    = {.training = true, .seed = 4, .step = 1, .first_row = first};
    const size_t           shape[4] = {n, config->height, config->width, config->channels};
    ddp_status_t           status   = DDP_OK;
    ddp_tensor_t          *x        = NULL;

    DDP_TRY(ddp_tape_begin(tape, &begin));
    if (config->kind == DDP_MODEL_GPT2) {
        const int32_t *tokens = words + first * config->context;

        return stats_p != NULL
                   ? ddp_model_forward_tokens(model, tape, tokens, targets + first * config->context, n,
                                              config->context, stats_p)
                   : ddp_model_logits(model, tape, tokens, n, config->context, logits_p);
    }
    DDP_TRY(ddp_tape_input(tape, pictures + first * shape[1] * shape[2] * shape[3], 4, shape, &x));
    DDP_TRY(ddp_model_forward(model, tape, x, &x));
    if (stats_p != NULL) {
        DDP_TRY(ddp_nn_cross_entropy(tape, x, targets + first, NULL, -1, stats_p));
    } else {
        *logits_p = x;
    }
out:
    return status;
}

/* The loss of some rows of what was gathered, on a tape of its own. */
static ddp_status_t loss_of_slice(ddp_tape_t *tape, const float *rows, const ddp_tensor_t *shape,
                                  const int32_t *wanted, ddp_tensor_t **x_p, ddp_loss_stats_t **stats_p)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_tape_begin(tape, &training));
    DDP_TRY(ddp_tape_variable(tape, rows, shape->ndim, shape->shape, x_p));
    DDP_TRY(ddp_nn_cross_entropy(tape, *x_p, wanted, NULL, -1, stats_p));
    DDP_TRY(ddp_tape_backward(tape));
out:
    return status;
}

/* One micro-batch: in one piece, then with logits that lie among others and the loss there. */
static void check_micro(ddp_model_t *model, const struct net *net, nn_world_t *world, nn_other_t *other,
                        float *gathered, size_t micro)
{
    const bool        is_text     = net->config.kind == DDP_MODEL_GPT2;
    const size_t      labels_each = is_text ? net->config.context : 1;
    const size_t      width       = is_text ? net->config.vocab : net->config.classes;
    size_t            first       = 0;
    ddp_tensor_t     *logits      = NULL;
    ddp_tensor_t     *x           = NULL;
    ddp_loss_stats_t *stats       = NULL;
    ddp_loss_stats_t  expected_stats;
    float            *expected, *slice;

    for (size_t i = 0; i < micro; i++) {
        first += micro_n[i];
    }
    nn_grads_spoil(world);
    ddp_assert_ok(run_model(model, &net->config, world->tape, first, micro_n[micro], NULL, &stats));
    ddp_assert_ok(ddp_tape_backward(world->tape));
    nn_world_wait(world);
    expected       = nn_grads_copy(world);
    expected_stats = *stats;

    nn_grads_spoil(world);
    slice = gathered + first * labels_each * width;
    ddp_assert_ok(run_model(model, &net->config, world->tape, first, micro_n[micro], &logits, NULL));
    ck_assert_uint_eq(logits->count, micro_n[micro] * labels_each * width);
    ddp_assert_ok(ddp_stream_copy(world->stream, slice, logits->data, logits->count * sizeof(float)));
    ddp_assert_ok(loss_of_slice(other->tape, slice, logits, targets + first * labels_each, &x, &stats));
    ddp_assert_ok(ddp_tape_backward_from(world->tape, logits, x->grad));
    nn_world_wait(world);
    ck_assert_mem_eq(stats, &expected_stats, sizeof(*stats));
    ck_assert_msg(nn_grads_equal(world, expected), "model kind %d, micro-batch %zu", (int)net->config.kind,
                  micro);
    ck_assert(expected_stats.loss > 0.0F);
    free(expected);
}

START_TEST(a_loss_elsewhere_gives_a_models_gradients_bit_for_bit)
{
    for (size_t k = 0; k < 2 * COUNT(nets); k++) {
        const struct net *net      = &nets[k / 2];
        float            *gathered = malloc(SAMPLES * 100 * 1100 * sizeof(float));
        ddp_model_t      *model    = NULL;
        nn_world_t        world;
        nn_other_t        other;

        fill_samples(&net->config);
        nn_world_open(&world, (ddp_isa_t)_i);
        ddp_assert_ok(ddp_model_create(&net->config, world.params, &model));
        nn_world_start(&world, 1);
        nn_world_wait(&world);
        nn_other_open(&other, &world);
        ddp_tape_set_recompute(world.tape, k % 2 == 1);
        ddp_tape_set_precision(world.tape, net->precision);
        for (size_t micro = 0; micro < MICROS; micro++) {
            check_micro(model, net, &world, &other, gathered, micro);
        }
        free(gathered);
        nn_other_close(&other);
        ddp_model_destroy(&model);
        nn_world_close(&world);
    }
}
END_TEST

/* The logits of a gpt2 on the tape itself: the layer takes the gradient of a loss of that tape too. A loss
 * that is multiplied comes into all gradients of both, the head's weight's too. */
START_TEST(logits_and_loss_on_one_tape_have_the_bits_of_the_fused_head)
{
    const struct net *net    = &nets[5];
    const float       scale  = _i % 2 == 0 ? 1.0F : 4096.0F;
    ddp_model_t      *model  = NULL;
    ddp_tensor_t     *logits = NULL;
    ddp_loss_stats_t *stats  = NULL;
    ddp_loss_stats_t  fused;
    float            *expected;
    nn_world_t        world;

    fill_samples(&net->config);
    nn_world_open(&world, (ddp_isa_t)(_i / 2));
    ddp_assert_ok(ddp_model_create(&net->config, world.params, &model));
    nn_world_start(&world, 1);
    ddp_tape_set_loss_scale(world.tape, scale);
    ddp_assert_ok(run_model(model, &net->config, world.tape, 0, 3, NULL, &stats));
    ddp_assert_ok(ddp_tape_backward(world.tape));
    nn_world_wait(&world);
    expected = nn_grads_copy(&world);
    fused    = *stats;
    nn_grads_spoil(&world);
    ddp_assert_ok(run_model(model, &net->config, world.tape, 0, 3, &logits, NULL));
    ddp_assert_ok(ddp_nn_cross_entropy(world.tape, logits, targets, NULL, -1, &stats));
    ddp_assert_ok(ddp_tape_backward(world.tape));
    nn_world_wait(&world);
    ck_assert_mem_eq(stats, &fused, sizeof(fused));
    ck_assert(nn_grads_equal(&world, expected));
    free(expected);
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loss elsewhere");
    TCase *tcase = tcase_create("all");

    tcase_add_loop_test(tcase, a_loss_elsewhere_gives_a_models_gradients_bit_for_bit, 0, nn_isas());
    tcase_add_loop_test(tcase, logits_and_loss_on_one_tape_have_the_bits_of_the_fused_head, 0, 2 * nn_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
