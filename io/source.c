#include "io/source_internal.h"

#include <stdio.h>

#include "base/error.h"

#define FNV_PRIME UINT64_C(0x100000001b3)

uint64_t ddp_source_hash(uint64_t hash, uint64_t number)
{
    for (int byte = 0; byte < 8; byte++) {
        hash = (hash ^ (number >> (8 * byte) & 0xff)) * FNV_PRIME;
    }
    return hash;
}

uint64_t ddp_source_hash_file(uint64_t hash, const ddp_source_file_t *file)
{
    return ddp_source_hash(ddp_source_hash(hash, file->seen.file_bytes), (uint64_t)file->seen.mtime_ns);
}

ddp_status_t ddp_source_same(const ddp_source_file_t *file, const ddp_bytes_t *bytes)
{
    ddp_status_t            status = DDP_OK;
    const ddp_bytes_info_t *info   = ddp_bytes_info(bytes);

    DDP_REQUIRE(info->file_bytes == file->seen.file_bytes && info->mtime_ns == file->seen.mtime_ns,
                DDP_ERR_FORMAT, "'%s': changed since it was opened: expected %llu bytes, found %llu",
                file->path, (unsigned long long)file->seen.file_bytes, (unsigned long long)info->file_bytes);
out:
    return status;
}

ddp_status_t ddp_source_samples(const ddp_dataset_params_t *params, const char *path, size_t there,
                                size_t *samples_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->samples <= there, DDP_ERR_CONFIG, "'%s': %zu samples asked for, %zu there", path,
                params->samples, there);
    *samples_p = params->samples > 0 ? params->samples : there;
out:
    return status;
}

void ddp_source_name(const ddp_dataset_params_t *params, const char *place, ddp_dataset_info_t *info)
{
    snprintf(info->source, sizeof(info->source), "%s (%s)", place,
             params->split == DDP_SPLIT_TRAIN ? "train" : "test");
}
