#include "launcher/json_read.h"

#include <math.h>
#include <stdio.h>

#include "base/utf8.h"

double ddp_json_number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

double ddp_json_at(const cJSON *list, int i)
{
    const cJSON *item = cJSON_GetArrayItem(list, i);

    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

const cJSON *ddp_json_first(const cJSON *list)
{
    return cJSON_IsArray(list) ? list->child : NULL;
}

double ddp_json_next(const cJSON **at_p)
{
    const cJSON *item = *at_p;

    if (item == NULL) {
        return NAN;
    }
    *at_p = item->next;
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

void ddp_json_text(const cJSON *object, const char *name, char *to, size_t size)
{
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    if (found != NULL) {
        (void)snprintf(to, size, "%s", found);
        ddp_utf8_clean(to);
    }
}
