#include "launcher/commands.h"

#include <string.h>

#include "launcher/bench.h"
#include "launcher/compare.h"
#include "launcher/convert_command.h"
#include "launcher/doctor.h"
#include "launcher/eval_command.h"
#include "launcher/generate_command.h"
#include "launcher/inspect.h"
#include "launcher/plan.h"
#include "launcher/report.h"
#include "launcher/suggest.h"
#include "launcher/supervise.h"

const ddp_command_t ddp_commands[] = {
    {"train", "train a model (the default)", NULL},
    {"doctor", "are these machines fit for training? The first thing to run on new ones", ddp_doctor_command},
    {"eval", "loss and accuracy of a checkpoint", ddp_eval_command},
    {"generate", "text from a trained gpt2", ddp_generate_command},
    {"bench", "measure collectives, operations, and training steps by phase", ddp_bench_command},
    {"compare", "one device, DataParallel and DDP next to each other, and which to use here",
     ddp_compare_command},
    {"convert", "text to token files and back; weights between checkpoint, safetensors and npz",
     ddp_convert_command},
    {"inspect", "what is in a checkpoint or a file of weights, or where two differ", ddp_inspect_command},
    {"supervise", "start a training, and after a fault start it again where it left off",
     ddp_supervise_command},
    {"plan", "how long a step would take on more machines", ddp_plan_command},
    {"report", "what became of a run, as a page with charts; also for TensorBoard and Perfetto",
     ddp_report_command},
};
const size_t ddp_n_commands = sizeof(ddp_commands) / sizeof(ddp_commands[0]);

const ddp_command_t *ddp_command_find(const char *word)
{
    for (size_t i = 0; i < ddp_n_commands; i++) {
        if (strcmp(ddp_commands[i].name, word) == 0) {
            return &ddp_commands[i];
        }
    }
    return NULL;
}

const char *ddp_command_suggest(const char *word)
{
    const char *names[sizeof(ddp_commands) / sizeof(ddp_commands[0])];

    for (size_t i = 0; i < ddp_n_commands; i++) {
        names[i] = ddp_commands[i].name;
    }
    return ddp_suggest(word, names, ddp_n_commands);
}
