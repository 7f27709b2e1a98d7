/* A configuration in YAML. */
#include <string.h>

#include "base/error.h"
#include "launcher/config.h"
#include "tests/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ddp_config_t config;
    char               *text = calloc(size + 1, 1);

    if (text == NULL) {
        abort();
    }
    memcpy(text, data, size);
    ddp_config_defaults(&config);
    ddp_ignore(ddp_config_load_text(&config, "fuzz", text), "refused or not, no harm may come of it");
    free(text);
    return 0;
}
