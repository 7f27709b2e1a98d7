#include "base/error.h"
#include "kernels/optim.h"

/* Level of the tree's root: the least with room for all leaves. */
static uint32_t root_level(size_t leaves)
{
    uint32_t level = 0;

    while (((size_t)1 << level) < leaves) {
        level++;
    }
    return level;
}

typedef struct builder {
    const uint32_t *level, *index; /* [nodes] */
    size_t          nodes;
    size_t          next; /* first node not yet in the program */
    int32_t        *op;
    size_t          length;
} builder_t;

/* Append the sum of the given nodes below node (level, index). @return whether there is one */
static bool append_node(builder_t *b, uint32_t level, uint32_t index)
{
    bool left;
    bool right;

    if (b->next == b->nodes || b->level[b->next] > level ||
        b->index[b->next] >> (level - b->level[b->next]) != index) {
        return false;
    }
    if (b->level[b->next] == level) {
        b->op[b->length++] = (int32_t)b->next++;
        return true;
    }
    left  = append_node(b, level - 1, 2 * index);
    right = append_node(b, level - 1, 2 * index + 1);
    if (left && right) {
        b->op[b->length++] = DDP_TREE_ADD;
    }
    return left || right;
}

ddp_status_t ddp_tree_program_make(size_t leaves, const uint32_t *level, const uint32_t *index, size_t nodes,
                                   int32_t *op, size_t *length_p)
{
    builder_t    b      = {.level = level, .index = index, .nodes = nodes, .op = op};
    ddp_status_t status = DDP_OK;
    uint32_t     root;

    DDP_REQUIRE(leaves <= (size_t)1 << (DDP_TREE_MAX_DEPTH - 1) && nodes <= INT32_MAX, DDP_ERR_INVALID_ARG,
                "tree of %zu leaves and %zu nodes is too large", leaves, nodes);
    root = root_level(leaves);
    for (size_t k = 0; k < nodes; k++) {
        DDP_REQUIRE(level[k] <= root && (size_t)index[k] << level[k] < leaves, DDP_ERR_INVALID_ARG,
                    "tree node %zu (level %u, index %u) is not in a tree of %zu leaves", k, level[k],
                    index[k], leaves);
    }
    (void)append_node(&b, root, 0);
    DDP_REQUIRE(b.next == nodes, DDP_ERR_INVALID_ARG,
                "tree node %zu (level %u, index %u) overlaps the one before it or is out of order", b.next,
                level[b.next], index[b.next]);
    *length_p = b.length;
out:
    return status;
}

size_t ddp_tree_nodes(size_t leaves, size_t first, size_t count, uint32_t *level, uint32_t *index)
{
    const size_t   end   = first + count;
    const uint32_t root  = root_level(leaves);
    size_t         nodes = 0;

    while (first < end) {
        uint32_t l = 0;

        /* the node above begins here as well, and ends in the range or with the tree */
        while (l < root && first % ((size_t)2 << l) == 0 &&
               (first + ((size_t)2 << l) <= end || (end == leaves && first + ((size_t)2 << l) > leaves))) {
            l++;
        }
        level[nodes]   = l;
        index[nodes++] = (uint32_t)(first >> l);
        first += (size_t)1 << l;
    }
    return nodes;
}
