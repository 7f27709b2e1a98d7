/** @file Network interfaces by name or by network, as ddp.interfaces lists them: "eth0,10.1.0.0/16". IPv4. */
#ifndef DDP_INTERFACE_H_
#define DDP_INTERFACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Is an interface one of the list? NULL or "": every one is. @param [in] address  network order */
DDP_API bool ddp_interface_is_wanted(const char *list, const char *name, uint32_t address);

/**
 * Does every entry of the list name an interface of this host that is up? Local.
 * @return DDP_ERR_CONFIG: "ddp.interfaces: eth7 is not on node2, which has lo 127.0.0.1, eth0 10.1.0.2"
 */
DDP_API ddp_status_t ddp_interfaces_check(const char *list) DDP_NODISCARD;

/**
 * The names of this host's interfaces that the list wants, as NCCL_SOCKET_IFNAME has them: "=eth0,ib0", and
 * not those that begin alike.
 * @return DDP_ERR_SYSTEM; DDP_ERR_CONFIG: too many for `size`
 */
DDP_API ddp_status_t ddp_interfaces_names(const char *list, char *names, size_t size) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
