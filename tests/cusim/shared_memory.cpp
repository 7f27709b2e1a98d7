/* Static shared arrays are thread-local variables of functions; where they lie is in the program's own symbol
 * table. */
#include "tests/cusim/shared_memory.h"

#include "tests/cusim/block.h"
#include "tests/cusim/sanitizer.h"
#include <algorithm>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

/* `extern __shared__ ... smem[]` of every kernel. */
alignas(1024) thread_local char smem[CUSIM_MAX_SHARED];

typedef struct range {
    size_t begin; /* offsets in the program's thread-local block */
    size_t end;
} range_t;

/* memset() would be seen by the sanitizers. */
static void fill(void *address, size_t bytes)
{
    asm volatile("rep stosb" : "+D"(address), "+c"(bytes) : "a"(0xff) : "memory");
}

/* The thread-local variables that belong to a function of C++: _ZZ... */
static void find_symbols(const char *image, std::vector<range_t> *ranges)
{
    const Elf64_Ehdr *head     = reinterpret_cast<const Elf64_Ehdr *>(image);
    const Elf64_Shdr *sections = reinterpret_cast<const Elf64_Shdr *>(image + head->e_shoff);

    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *symbols = reinterpret_cast<const Elf64_Sym *>(image + sections[i].sh_offset);
        const char      *names   = image + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof(*symbols); k++) {
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_TLS &&
                strncmp(names + symbols[k].st_name, "_ZZ", 3) == 0) {
                ranges->push_back({symbols[k].st_value, symbols[k].st_value + symbols[k].st_size});
            }
        }
    }
}

/* Neighbours become one range; a few bytes of alignment between them belong to nobody. */
static std::vector<range_t> find_ranges(void)
{
    std::vector<range_t> ranges;
    std::vector<range_t> merged;
    struct stat          status;
    int                  fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &status) == 0) {
        void *image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (image != MAP_FAILED) {
            find_symbols(static_cast<const char *>(image), &ranges);
            munmap(image, (size_t)status.st_size);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const range_t &a, const range_t &b) { return a.begin < b.begin; });
    for (const range_t &range : ranges) {
        if (!merged.empty() && range.begin <= merged.back().end + 16) {
            merged.back().end = std::max(merged.back().end, range.end);
        } else {
            merged.push_back(range);
        }
    }
    return merged;
}

static int find_block(struct dl_phdr_info *info, size_t bytes, void *block_p)
{
    (void)bytes;
    *static_cast<char **>(block_p) = static_cast<char *>(info->dlpi_tls_data);
    return 1; /* the first one is the program itself */
}

static void renew(char *address, size_t bytes)
{
    fill(address, bytes);
#if defined CUSIM_TSAN
    static char heap[8];
    static bool is_ready = false;
    uintptr_t   begin    = reinterpret_cast<uintptr_t>(address) & ~(uintptr_t)7;
    uintptr_t   end      = (reinterpret_cast<uintptr_t>(address) + bytes + 7) & ~(uintptr_t)7;

    /* Forgets who wrote there before: what an allocator of Java is to the sanitizer. A large heap makes
     * reports very slow, and any address is taken. */
    if (!is_ready) {
        __tsan_java_init(reinterpret_cast<uintptr_t>(heap), sizeof(heap));
        is_ready = true;
    }
    if (end > begin) {
        __tsan_java_alloc(begin, end - begin);
    }
#endif
}

void cusim_shared_start(size_t bytes)
{
    static const std::vector<range_t> ranges = find_ranges();
    char                             *block  = NULL;

    renew(smem, bytes);
    CUSIM_UNPOISON(smem, bytes);
    CUSIM_POISON(smem + bytes, sizeof(smem) - bytes);
    dl_iterate_phdr(find_block, &block);
    for (const range_t &range : ranges) {
        if (block != NULL) {
            renew(block + range.begin, range.end - range.begin);
        }
    }
}

void cusim_shared_end(size_t bytes)
{
    (void)bytes;
    CUSIM_UNPOISON(smem, sizeof(smem));
}
