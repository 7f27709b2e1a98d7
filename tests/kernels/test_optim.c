#include "kernels/layout.h"
#include "kernels/optim.h"
#include "tests/kernels/kernel_fixture.h"

#define COUNT 16 /* values of a line of the data file; a block holds them 16 times over */
#define STEPS 5

static const int32_t one_source[] = {0};

/* One case of optim_torch.txt; the script beside it says what its lines are. */
typedef struct torch_case {
    ddp_optim_config_t config;
    float              lr;
    size_t             slots;
} torch_case_t;

static bool read_case(FILE *file, torch_case_t *c)
{
    char   kind[8];
    double lr;
    int    nesterov;

    if (fscanf(file, " case %7s %lf %lf %lf %lf %lf %d %lf %zu", kind, &lr, &c->config.beta1,
               &c->config.beta2, &c->config.eps, &c->config.momentum, &nesterov, &c->config.weight_decay,
               &c->slots) != 9) {
        return false;
    }
    c->config.kind     = strcmp(kind, "adamw") == 0 ? DDP_OPTIM_ADAMW : DDP_OPTIM_SGD;
    c->config.nesterov = nesterov != 0;
    c->lr              = (float)lr;
    return true;
}

static void read_line(FILE *file, double *value)
{
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_int_eq(fscanf(file, "%lf", &value[i]), 1);
    }
}

static void to_block(const double *value, float *block)
{
    for (size_t i = 0; i < DDP_BLOCK; i++) {
        block[i] = (float)value[i % COUNT];
    }
}

/*
 * A slot differs from PyTorch's float32 by its own roundings, at most six steps of 6e-8 of the largest term
 * that went into it; where terms cancel, that is more than 6e-8 of the value.
 */
static void check_slot(const float *slot, const double *float32, const double *largest)
{
    for (size_t i = 0; i < DDP_BLOCK; i++) {
        ck_assert_msg(fabs((double)slot[i] - float32[i % COUNT]) <= 4e-7 * largest[i % COUNT],
                      "element %zu: %.9g, not %.9g", i, (double)slot[i], float32[i % COUNT]);
    }
}

/*
 * Our distance to PyTorch's float64 run is at most twice that of its float32 run, which may be near by luck:
 * two roundings of the parameter a step, and what float32 does to the update, come on top.
 */
static void check_param(const ddp_update_t *u, const double *float32, const double *float64)
{
    for (size_t i = 0; i < DDP_BLOCK; i++) {
        const double exact = float64[i % COUNT];
        const double step  = 1.2e-7 * fabs(exact) + 1e-6 * (double)u->lr;
        const double bound = 2.0 * fabs(float32[i % COUNT] - exact) + (double)u->step * step;

        ck_assert_msg(fabs((double)u->param[i] - exact) <= bound, "element %zu: %.9g, not %.9g", i,
                      (double)u->param[i], exact);
    }
}

static void run_case(FILE *file, const torch_case_t *c, ddp_isa_t isa)
{
    const float             *source[1];
    float                   *block[4]; /* parameters, two slots, gradient */
    double                   value[COUNT];
    double                   exact[COUNT];
    double                   largest[2][COUNT] = {{0}}; /* term of each slot so far */
    const ddp_tree_program_t program           = {.op = one_source, .length = 1, .source = source};
    ddp_update_t             update            = {.config = &c->config, .lr = c->lr, .grad_scale = 0.5F};

    for (int k = 0; k < 4; k++) {
        block[k] = fixture_new(DDP_BLOCK);
    }
    read_line(file, value);
    to_block(value, block[0]);
    memset(block[1], 0, c->config.kind == DDP_OPTIM_ADAMW ? DDP_BLOCK * sizeof(float) : 0);
    memset(block[2], 0, DDP_BLOCK * sizeof(float));
    source[0]      = block[3];
    update.param   = block[0];
    update.slot[0] = block[1];
    update.slot[1] = block[2];
    ddp_assert_ok(ddp_optim_check(&c->config));
    ck_assert_uint_eq(ddp_optim_slots(&c->config), c->slots);
    for (update.step = 1; update.step <= STEPS; update.step++) {
        read_line(file, value);
        to_block(value, block[3]);
        for (size_t i = 0; i < DDP_BLOCK; i++) {
            block[3][i] *= 2.0F; /* undone by grad_scale, without rounding */
        }
        ddp_tree_update(isa, &program, &update, 1);
        read_line(file, value);
        read_line(file, exact);
        check_param(&update, value, exact);
        for (size_t k = 0; k < c->slots; k++) {
            read_line(file, value);
            for (size_t i = 0; i < COUNT; i++) {
                largest[k][i] = fmax(largest[k][i], fabs(value[i]));
            }
            check_slot(update.slot[k], value, largest[k]);
        }
    }
    for (int k = 0; k < 4; k++) {
        fixture_free(block[k]);
    }
}

START_TEST(updates_equal_those_of_pytorch)
{
    FILE        *file = fopen(DDP_TEST_DATA_DIR "/optim_torch.txt", "r");
    torch_case_t c    = {.lr = 0.0F};
    size_t       done = 0;

    ck_assert_ptr_nonnull(file);
    while (read_case(file, &c)) {
        run_case(file, &c, (ddp_isa_t)_i);
        done++;
    }
    ck_assert_uint_eq(done, 8);
    fclose(file);
}
END_TEST

static const ddp_optim_config_t configs[] = {
    DDP_OPTIM_CONFIG_ADAMW,
    {.kind = DDP_OPTIM_SGD, .weight_decay = 0.1},
    {.kind = DDP_OPTIM_SGD, .momentum = 0.9},
    {.kind = DDP_OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
};
#define CONFIGS (sizeof(configs) / sizeof(configs[0]))
#define BLOCKS  3
#define FLOATS  (BLOCKS * DDP_BLOCK)

/* Parameters and slots after three updates by the program, in one buffer. */
static void update_thrice(ddp_isa_t isa, const ddp_optim_config_t *config, const ddp_tree_program_t *program,
                          float *state)
{
    ddp_update_t update = {.config     = config,
                           .lr         = 0.01F,
                           .grad_scale = 0.3F,
                           .param      = state,
                           .slot       = {state + FLOATS, state + 2 * FLOATS}};

    for (size_t i = 0; i < FLOATS; i++) {
        state[i]              = (float)i / FLOATS;
        state[FLOATS + i]     = 0.0F;
        state[2 * FLOATS + i] = 0.0F;
    }
    for (update.step = 1; update.step <= 3; update.step++) {
        ddp_tree_update(isa, program, &update, BLOCKS);
    }
}

START_TEST(a_fused_update_has_the_bits_of_sum_then_update)
{
    const uint32_t zero[9] = {0};
    uint32_t       index[9];
    float         *fused = fixture_new(3 * FLOATS);
    float         *apart = fixture_new(3 * FLOATS);
    float         *sum   = fixture_new(FLOATS);

    for (size_t n = 0; n < 4 * CONFIGS * 9; n++) {
        const ddp_optim_config_t *config  = &configs[n % CONFIGS];
        const size_t              sources = n / CONFIGS % 9 + 1;
        const float              *source[9];
        float                     scale[9];
        int32_t                   op[18];
        ddp_tree_program_t        program = {
                   .op = op, .source = source, .scale = n < 2 * CONFIGS * 9 ? NULL : scale};
        const float             *whole[] = {sum};
        const ddp_tree_program_t single  = {.op = one_source, .length = 1, .source = whole};

        for (size_t k = 0; k < sources; k++) {
            index[k]  = (uint32_t)k;
            scale[k]  = 1.0F / (float)(k + 2);
            source[k] = fixture_random(FLOATS, (uint32_t)(n + k), 1.0F);
        }
        ddp_assert_ok(ddp_tree_program_make(sources, zero, index, sources, op, &program.length));
        update_thrice((ddp_isa_t)_i, config, &program, fused);
        ddp_tree_sum((ddp_isa_t)_i, &program, sum, BLOCKS);
        update_thrice((ddp_isa_t)_i, config, &single, apart);
        ck_assert_mem_eq(fused, apart, 3 * FLOATS * sizeof(*fused));
        for (size_t k = 0; k < sources; k++) {
            fixture_free((void *)(uintptr_t)source[k]);
        }
    }
    fixture_free(fused);
    fixture_free(apart);
    fixture_free(sum);
}
END_TEST

START_TEST(instruction_sets_agree_within_rounding)
{
    const float             *source[1] = {fixture_random(FLOATS, 4, 1.0F)};
    const ddp_tree_program_t program   = {.op = one_source, .length = 1, .source = source};
    float                   *got       = fixture_new(3 * FLOATS);
    float                   *plain     = fixture_new(3 * FLOATS);
    double                  *wanted    = malloc(3 * FLOATS * sizeof(*wanted));

    for (size_t k = 0; k < CONFIGS; k++) {
        update_thrice((ddp_isa_t)_i, &configs[k], &program, got);
        update_thrice(DDP_ISA_PLAIN, &configs[k], &program, plain);
        for (size_t i = 0; i < 3 * FLOATS; i++) {
            wanted[i] = (double)plain[i];
        }
        /* three steps of a few roundings each */
        ck_assert_double_le(fixture_error(got, wanted, 3 * FLOATS, 0.01), 1e-6);
    }
    fixture_free((void *)(uintptr_t)source[0]);
    fixture_free(got);
    fixture_free(plain);
    free(wanted);
}
END_TEST

START_TEST(an_empty_program_is_a_gradient_of_zero)
{
    static const float       zero[FLOATS];
    const float             *source[1] = {zero};
    const ddp_tree_program_t empty     = {.op = one_source, .length = 0, .source = source};
    const ddp_tree_program_t program   = {.op = one_source, .length = 1, .source = source};
    float                   *got       = fixture_new(3 * FLOATS);
    float                   *wanted    = fixture_new(3 * FLOATS);

    for (size_t k = 0; k < CONFIGS; k++) {
        update_thrice((ddp_isa_t)_i, &configs[k], &empty, got);
        update_thrice((ddp_isa_t)_i, &configs[k], &program, wanted);
        ck_assert_mem_eq(got, wanted, 3 * FLOATS * sizeof(*got));
    }
    fixture_free(got);
    fixture_free(wanted);
}
END_TEST

/* What an update says of the gradient, with and without its sum of squares. */
static void check_watch(ddp_isa_t isa, const ddp_optim_config_t *config, float *gradient, float *state)
{
    static const float       odd[]     = {1.0F, NAN, INFINITY, -INFINITY, 3.4e38F, 0.0F, -0.0F};
    const float             *source[1] = {gradient};
    const ddp_tree_program_t program   = {.op = one_source, .length = 1, .source = source};
    double                   sumsq[BLOCKS + 1];
    double                   wanted[BLOCKS];
    float                   *sum    = fixture_new(FLOATS);
    ddp_update_t             update = {.config     = config,
                                       .lr         = 0.01F,
                                       .grad_scale = 0.3F,
                                       .step       = 1,
                                       .param      = state,
                                       .slot       = {state + FLOATS, state + 2 * FLOATS}};

    for (size_t k = 0; k < 2 * sizeof(odd) / sizeof(odd[0]); k++) {
        const float value  = odd[k / 2];
        const bool  finite = isfinite(value);

        memset(state, 0, 3 * FLOATS * sizeof(*state));
        for (size_t i = 0; i < FLOATS; i++) {
            gradient[i] = i == k * 59 % FLOATS ? value : 1.0F;
        }
        sumsq[BLOCKS] = -7.0;
        update.sumsq  = k % 2 == 0 ? NULL : sumsq;
        ck_assert_int_eq(ddp_tree_update(isa, &program, &update, BLOCKS), finite);
        ck_assert_int_eq(ddp_tree_average(isa, &program, state, 0.5F, 1, update.sumsq, BLOCKS), finite);
        if (k % 2 == 1) {
            ddp_tree_sum_sumsq(isa, &program, sum, wanted, BLOCKS);
            for (size_t b = 0; b < BLOCKS; b++) {
                ck_assert(sumsq[b] == wanted[b] || (!isfinite(sumsq[b]) && !isfinite(wanted[b])));
            }
            ck_assert(sumsq[BLOCKS] == -7.0);
        }
    }
    gradient[5]   = NAN;
    gradient[300] = INFINITY;
    fixture_free(sum);
}

START_TEST(a_gradient_that_is_not_finite_is_not_hidden)
{
    float                   *gradient  = fixture_random(FLOATS, 4, 1.0F);
    float                   *state     = fixture_new(3 * FLOATS);
    const float             *source[1] = {gradient};
    const ddp_tree_program_t program   = {.op = one_source, .length = 1, .source = source};

    gradient[5]   = NAN;
    gradient[300] = INFINITY;
    for (size_t k = 0; k < CONFIGS; k++) {
        update_thrice((ddp_isa_t)_i, &configs[k], &program, state);
        ck_assert(isnan(state[5]) && !isfinite(state[300]) && isfinite(state[301]));
        check_watch((ddp_isa_t)_i, &configs[k], gradient, state);
    }
    fixture_free(gradient);
    fixture_free(state);
}
END_TEST

/* parts = 4 and a momentum of 1/4: all exact for small integers. */
START_TEST(a_running_average_is_exact_where_its_closed_form_is)
{
    static const int32_t     op[]      = {0, 1, DDP_TREE_ADD};
    const float             *source[2] = {fixture_new(FLOATS), fixture_new(FLOATS)};
    float                   *value     = fixture_new(FLOATS);
    const float              scale[2]  = {2.0F, 1.0F};
    const ddp_tree_program_t program   = {.op = op, .length = 3, .source = source, .scale = scale};
    const ddp_tree_program_t nothing   = {.op = op, .length = 0, .source = source};

    for (size_t i = 0; i < FLOATS; i++) {
        ((float *)(uintptr_t)source[0])[i] = (float)(i % 13);
        ((float *)(uintptr_t)source[1])[i] = (float)(i % 7) - 3.0F;
        value[i]                           = (float)(i % 5);
    }
    ddp_tree_average((ddp_isa_t)_i, &program, value, 0.25F, 4, NULL, BLOCKS);
    for (size_t i = 0; i < FLOATS; i++) {
        const float sum = 2.0F * (float)(i % 13) + (float)(i % 7) - 3.0F;

        ck_assert(value[i] == 0.75F * (float)(i % 5) + 0.25F * (sum / 4.0F));
    }
    ddp_tree_average((ddp_isa_t)_i, &program, value, 1.0F, 1, NULL, BLOCKS);
    for (size_t i = 0; i < FLOATS; i++) {
        ck_assert(value[i] == 2.0F * (float)(i % 13) + (float)(i % 7) - 3.0F);
    }
    ddp_tree_average((ddp_isa_t)_i, &nothing, value, 0.5F, 3, NULL, BLOCKS);
    ck_assert(value[1] == 0.5F * (2.0F + 1.0F - 3.0F) && value[2] == 0.5F * (4.0F + 2.0F - 3.0F));
    ddp_tree_average((ddp_isa_t)_i, &nothing, NULL, 0.5F, 3, NULL, 0);
    fixture_free(value);
    fixture_free((void *)(uintptr_t)source[0]);
    fixture_free((void *)(uintptr_t)source[1]);
}
END_TEST

/* torch.nn.BatchNorm2d(momentum=0.1): 0.9 * running + 0.1 * batch, batch after batch; here in float64. */
START_TEST(a_running_average_follows_its_recurrence)
{
    const float             *source[1] = {fixture_random(FLOATS, 9, 3.0F)};
    const ddp_tree_program_t program   = {.op = one_source, .length = 1, .source = source};
    float                   *value     = fixture_new(FLOATS);

    memset(value, 0, FLOATS * sizeof(*value));
    for (int n = 0; n < 5; n++) {
        ddp_tree_average((ddp_isa_t)_i, &program, value, 0.1F, 3, NULL, BLOCKS);
    }
    for (size_t i = 0; i < FLOATS; i++) { /* the momentum is a float32: 0.1 has an error of 1.5e-8 */
        const double wanted = (double)source[0][i] / 3.0 * (1.0 - pow(0.9, 5.0));

        ck_assert(fabs((double)value[i] - wanted) <= 1e-6 * fabs(wanted));
    }
    fixture_free(value);
    fixture_free((void *)(uintptr_t)source[0]);
}
END_TEST

START_TEST(slots_have_the_names_of_pytorch)
{
    ck_assert_uint_eq(ddp_optim_slots(&configs[0]), 2);
    ck_assert_str_eq(ddp_optim_slot_name(&configs[0], 0), "exp_avg");
    ck_assert_str_eq(ddp_optim_slot_name(&configs[0], 1), "exp_avg_sq");
    ck_assert_uint_eq(ddp_optim_slots(&configs[1]), 0);
    ck_assert_uint_eq(ddp_optim_slots(&configs[2]), 1);
    ck_assert_str_eq(ddp_optim_slot_name(&configs[2], 0), "momentum_buffer");
}
END_TEST

START_TEST(a_value_out_of_range_is_named)
{
    static const struct {
        ddp_optim_config_t config;
        const char        *text;
    } wrong[] = {
        {{.kind = DDP_OPTIM_ADAMW, .beta1 = 1.0}, "beta1 1 is not in [0, 1)"},
        {{.kind = DDP_OPTIM_ADAMW, .beta2 = -0.5}, "beta2 -0.5"},
        {{.kind = DDP_OPTIM_ADAMW, .eps = -1e-8}, "eps -1e-08"},
        {{.kind = DDP_OPTIM_ADAMW, .weight_decay = -1}, "weight_decay -1"},
        {{.kind = DDP_OPTIM_ADAMW, .beta1 = (double)NAN}, "beta1"},
        {{.kind = DDP_OPTIM_SGD, .momentum = -0.1}, "momentum -0.1"},
        {{.kind = DDP_OPTIM_SGD, .nesterov = true}, "nesterov needs momentum"},
        {{.kind = DDP_OPTIM_SGD, .weight_decay = (double)INFINITY}, "weight_decay inf"},
    };

    for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
        ddp_assert_fails(ddp_optim_check(&wrong[k].config), DDP_ERR_INVALID_ARG, wrong[k].text);
    }
    for (size_t k = 0; k < CONFIGS; k++) {
        ddp_assert_ok(ddp_optim_check(&configs[k]));
    }
}
END_TEST

int main(void)
{
    Suite *suite   = suite_create("optim");
    TCase *config  = tcase_create("configuration");
    TCase *updates = tcase_create("each instruction set");

    tcase_add_test(config, slots_have_the_names_of_pytorch);
    tcase_add_test(config, a_value_out_of_range_is_named);
    suite_add_tcase(suite, config);
    tcase_add_loop_test(updates, updates_equal_those_of_pytorch, 0, fixture_isas());
    tcase_add_loop_test(updates, a_fused_update_has_the_bits_of_sum_then_update, 0, fixture_isas());
    tcase_add_loop_test(updates, instruction_sets_agree_within_rounding, 0, fixture_isas());
    tcase_add_loop_test(updates, an_empty_program_is_a_gradient_of_zero, 0, fixture_isas());
    tcase_add_loop_test(updates, a_gradient_that_is_not_finite_is_not_hidden, 0, fixture_isas());
    tcase_add_loop_test(updates, a_running_average_is_exact_where_its_closed_form_is, 0, fixture_isas());
    tcase_add_loop_test(updates, a_running_average_follows_its_recurrence, 0, fixture_isas());
    suite_add_tcase(suite, updates);
    return ddp_test_run(suite);
}
