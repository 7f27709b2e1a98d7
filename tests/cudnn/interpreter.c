#include "tests/cudnn/interpreter.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cudnn/interpreter_internal.h"

ddp_interpreter_t ddp_interpreter;

const ddp_attribute_t *ddp_attribute_find(const ddp_descriptor_t *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n_attributes; i++) {
        if (d->attributes[i].name == name) {
            return &d->attributes[i];
        }
    }
    return NULL;
}

const ddp_descriptor_t *ddp_attribute_part(const ddp_descriptor_t *d, cudnnBackendAttributeName_t name)
{
    const ddp_attribute_t *a = ddp_attribute_find(d, name);

    return a == NULL ? NULL : *(ddp_descriptor_t *const *)a->elements;
}

static size_t element_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4;
    }
}

static size_t version(void)
{
    return DDP_CUDNN_OLDEST;
}

static const char *error_string(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "success" : "a failure";
}

static void last_error(char *message, size_t bytes)
{
    snprintf(message, bytes, "said by the interpreter");
}

static cudnnStatus_t create(cudnnHandle_t *handle_p)
{
    if (ddp_interpreter.create == CUDNN_STATUS_SUCCESS) {
        *handle_p = (cudnnHandle_t)&ddp_interpreter;
    }
    return ddp_interpreter.create;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    return handle == (cudnnHandle_t)&ddp_interpreter ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    ddp_interpreter.stream = stream;
    return destroy(handle);
}

static cudnnStatus_t descriptor_create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d_p)
{
    ddp_descriptor_t *d = calloc(1, sizeof(*d));

    d->type = type;
    *d_p    = d;
    ddp_interpreter.descriptors++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t descriptor_destroy(cudnnBackendDescriptor_t d)
{
    ddp_descriptor_t *own = d;

    for (int i = 0; i < own->n_attributes; i++) {
        free(own->attributes[i].elements);
    }
    free(own);
    ddp_interpreter.descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t attribute_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    ddp_descriptor_t *own   = d;
    const size_t      bytes = (size_t)count * element_bytes(type);
    ddp_attribute_t  *a     = &own->attributes[own->n_attributes];

    if (own->is_final || ddp_attribute_find(own, name) != NULL) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    ck_assert(own->n_attributes < DDP_INTERPRETER_ATTRIBUTES);
    own->n_attributes++;
    *a = (ddp_attribute_t){name, count, malloc(bytes)};
    memcpy(a->elements, elements, bytes);
    return CUDNN_STATUS_SUCCESS;
}

/* Each graph has one engine, in one configuration: its engine is the graph. */
static cudnnStatus_t attribute_get(const cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t room, int64_t *count_p,
                                   void *elements)
{
    const ddp_descriptor_t *own   = d;
    const ddp_descriptor_t *graph = ddp_attribute_part(own, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int64_t                 n     = 0;

    ck_assert(room > 0);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        n = 1;
        attribute_set(*(cudnnBackendDescriptor_t *)elements, CUDNN_ATTR_ENGINECFG_ENGINE, type, 1, &graph);
        break;
    case CUDNN_ATTR_ENGINECFG_ENGINE: /* the notes are the same for all */
        n = 1;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; note++) {
            if ((ddp_interpreter.notes >> note & 1) != 0) {
                ((cudnnBackendNumericalNote_t *)elements)[n++] = (cudnnBackendNumericalNote_t)note;
            }
        }
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        n                    = 1;
        *(int64_t *)elements = ddp_interpreter.workspace;
        break;
    default:
        return CUDNN_STATUS_BAD_PARAM;
    }
    *count_p = n;
    return CUDNN_STATUS_SUCCESS;
}

static const ddp_descriptor_t *graph_of(const ddp_descriptor_t *plan)
{
    const ddp_descriptor_t *config = ddp_attribute_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    return ddp_attribute_part(config, CUDNN_ATTR_ENGINECFG_ENGINE);
}

static const ddp_attribute_t *ops_of(const ddp_descriptor_t *plan)
{
    return ddp_attribute_find(graph_of(plan), CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t d)
{
    ddp_descriptor_t *own = d;

    if (own->is_final) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    if (own->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        if (ddp_interpreter.finalize != CUDNN_STATUS_SUCCESS) {
            return ddp_interpreter.finalize;
        }
        if (ddp_attribute_find(own, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == NULL &&
            ddp_attribute_find(own, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) == NULL) {
            return CUDNN_STATUS_BAD_PARAM;
        }
        if (ddp_interpreter.most_ops > 0 && ops_of(own)->count > ddp_interpreter.most_ops) {
            return CUDNN_STATUS_NOT_SUPPORTED;
        }
        ddp_interpreter.plans++;
    }
    own->is_final = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack)
{
    if (ddp_interpreter.execute != CUDNN_STATUS_SUCCESS) {
        return ddp_interpreter.execute;
    }
    if (destroy(handle) != CUDNN_STATUS_SUCCESS || !((const ddp_descriptor_t *)pack)->is_final) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    ddp_interpreter_run(graph_of(plan), pack);
    ddp_interpreter.executed++;
    return CUDNN_STATUS_SUCCESS;
}

const ddp_cudnn_table_t *ddp_interpreter_table(void)
{
    static const ddp_cudnn_table_t table = {
        .version            = version,
        .error_string       = error_string,
        .last_error         = last_error,
        .create             = create,
        .destroy            = destroy,
        .set_stream         = set_stream,
        .descriptor_create  = descriptor_create,
        .descriptor_destroy = descriptor_destroy,
        .attribute_set      = attribute_set,
        .attribute_get      = attribute_get,
        .finalize           = finalize,
        .execute            = execute,
    };

    return &table;
}
