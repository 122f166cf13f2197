// Tells ThreadSanitizer about objects that gRPC passes between threads.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_HAND_OVER_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_HAND_OVER_H_

namespace tandem::cli {

// gRPC passes an object of ours from the thread that starts a call to the threads on which it calls
// us back. It synchronizes these threads, but ThreadSanitizer does not see how, because gRPC is
// built without it. These two functions tell ThreadSanitizer. They do nothing in other builds. See
// __tsan_release and __tsan_acquire in LLVM's sanitizer/tsan_interface.h.

#ifdef TANDEM_THREAD_SANITIZER
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
// Called before the object is given to gRPC.
inline void HandOver(void* object) { __tsan_release(object); }
// Called first on a thread that gRPC gave the object to.
inline void TakeOver(void* object) { __tsan_acquire(object); }
#else
inline void HandOver(void* /*object*/) {}
inline void TakeOver(void* /*object*/) {}
#endif

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_HAND_OVER_H_
