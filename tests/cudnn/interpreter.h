/**
 * @file A stand-in for libcudnn: keeps descriptors as they were set, and runs a graph operation by operation
 * in host memory, in float64. What it computes is what the graph says, so it checks the graphs and the
 * numbers of their tensors, not cuDNN. One process has one.
 */
#ifndef DDP_TEST_CUDNN_INTERPRETER_H_
#define DDP_TEST_CUDNN_INTERPRETER_H_

#include "kernels/cuda/cudnn_plan.h"

/** What it answers and what it was asked. Set before use; counters are the interpreter's. */
typedef struct ddp_interpreter {
    unsigned      notes;     /* of its engine, bits as DDP_CUDNN_NOTE() */
    int64_t       workspace; /* bytes that its plans want */
    int64_t       most_ops;  /* of a graph that it makes a plan of; 0: any number */
    cudnnStatus_t finalize;  /* answer to the finalization of a plan */
    cudnnStatus_t execute;   /* answer to an execution */
    cudnnStatus_t create;    /* answer to cudnnCreate() */
    int           plans;     /* finalized */
    int           executed;
    int           descriptors;                              /* that exist now */
    cudaStream_t  stream;                                   /* set last */
    void (*read)(void *to, const void *from, size_t bytes); /* from memory of tensors; NULL: memcpy */
    void (*write)(void *to, const void *from, size_t bytes);
} ddp_interpreter_t;

extern ddp_interpreter_t ddp_interpreter;

const ddp_cudnn_table_t *ddp_interpreter_table(void);

#endif
