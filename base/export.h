/** @file Visibility and attribute macros of the public headers. */
#ifndef DDP_EXPORT_H_
#define DDP_EXPORT_H_

#define DDP_API             __attribute__((visibility("default")))
#define DDP_NODISCARD       __attribute__((warn_unused_result))
#define DDP_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))

#endif
