#include <stdio.h>

#include "base/status.h"

int main(void)
{
    return puts(ddp_status_text(DDP_ERR_NO_MEMORY)) < 0;
}
