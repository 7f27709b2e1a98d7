/** @file What the two halves of the interpreter share: descriptors as they were set. Private. */
#ifndef DDP_TEST_CUDNN_INTERPRETER_INTERNAL_H_
#define DDP_TEST_CUDNN_INTERPRETER_INTERNAL_H_

#include "tests/cudnn/interpreter.h"

#define DDP_INTERPRETER_ATTRIBUTES 16

typedef struct ddp_attribute {
    cudnnBackendAttributeName_t name;
    int64_t                     count;
    void                       *elements; /* owned */
} ddp_attribute_t;

typedef struct ddp_descriptor {
    cudnnBackendDescriptorType_t type;
    bool                         is_final;
    ddp_attribute_t              attributes[DDP_INTERPRETER_ATTRIBUTES];
    int                          n_attributes;
} ddp_descriptor_t;

/** @return NULL: not set. */
const ddp_attribute_t *ddp_attribute_find(const ddp_descriptor_t *d, cudnnBackendAttributeName_t name);
/** A descriptor that is the value of an attribute; NULL: not set. */
const ddp_descriptor_t *ddp_attribute_part(const ddp_descriptor_t *d, cudnnBackendAttributeName_t name);

/** Run the operations of `graph` on the tensors of `pack`. */
void ddp_interpreter_run(const ddp_descriptor_t *graph, const ddp_descriptor_t *pack);

#endif
