// Facts by which two processes know that they can share memory.
#ifndef TANDEM_SERVICES_WORKER_HOST_IDENTITY_H_
#define TANDEM_SERVICES_WORKER_HOST_IDENTITY_H_

#include <string>

namespace tandem {

// Identifies one boot of the kernel. It is equal for all processes on one host, including
// containers. Empty if the kernel does not tell it.
std::string BootId();

// The PID namespace of this process, e.g. "pid:[4026531836]". Empty if the kernel does not tell it.
std::string PidNamespace();

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_HOST_IDENTITY_H_
