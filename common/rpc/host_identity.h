// By what two processes know that they can share memory.
#ifndef TANDEM_COMMON_RPC_HOST_IDENTITY_H_
#define TANDEM_COMMON_RPC_HOST_IDENTITY_H_

#include <string>

namespace tandem {

// One per boot of the kernel: equal on one host, containers included. Empty where the kernel does
// not say.
std::string BootId();

// Of this process, e.g. "pid:[4026531836]". Empty where the kernel does not say.
std::string PidNamespace();

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_HOST_IDENTITY_H_
