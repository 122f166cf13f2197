// The lifetime of the object of an asynchronous gRPC call.
#ifndef TANDEM_COMMON_RPC_CALL_LIFETIME_H_
#define TANDEM_COMMON_RPC_CALL_LIFETIME_H_

#include <cassert>

#include "common/rpc/async_tag.h"

namespace tandem {

// The base of every call at the client's and at the server's end. For each operation in progress (a
// read, a write, an alarm, the end of the call), gRPC holds a pointer into the call's object. gRPC
// returns these pointers in an order of its own. This class alone decides when the object may be
// destroyed:
//
//   OnQuiet is called when the call has ended (End) and gRPC holds none of its tags. OnQuiet may
//   destroy the object. Nobody destroys it between the first operation and OnQuiet.
//
// A call consists of Operations, one for each kind:
//
//   class Call final : public CallLifetime {
//     void Read() { reader_.Read(&message_, read_.Begin()); }
//     void OnRead(bool ok);
//     Operation<Call> read_{this, &Call::OnRead};
//   };
//
// Everything runs on the thread that polls the completion queue.
class CallLifetime {
 public:
  CallLifetime(const CallLifetime&) = delete;
  CallLifetime& operator=(const CallLifetime&) = delete;

 protected:
  // A kind of operation. gRPC takes one operation of a kind at a time.
  template <typename Call>
  class Operation final : public AsyncTag {
   public:
    // `handler` is called with gRPC's `ok` when the operation is over. The handler may begin
    // operations, including this one, and may end the call. It must not destroy the call.
    Operation(Call* call, void (Call::*handler)(bool ok)) : call_(call), handler_(handler) {}

    // Counts the operation, and returns the tag to begin it with.
    void* Begin() {
      Expect();
      return tag();
    }

    // The two halves of Begin, for a tag that gRPC returns only under a condition. The tag is
    // handed over first, and counted when it is certain to come back.
    void* tag() { return static_cast<AsyncTag*>(this); }
    void Expect() {
      assert(!under_way_);
      under_way_ = true;
      ++Lifetime().num_under_way_;
    }

    bool under_way() const { return under_way_; }

    void Proceed(bool ok) override {
      under_way_ = false;
      --Lifetime().num_under_way_;
      (call_->*handler_)(ok);
      Lifetime().CloseIfQuiet();  // may destroy this
    }

   private:
    CallLifetime& Lifetime() { return *call_; }

    Call* call_;
    void (Call::*handler_)(bool ok);
    bool under_way_ = false;
  };

  CallLifetime() = default;
  ~CallLifetime() { assert(num_under_way_ == 0); }

  // Call this function when the call is over, or never began. OnQuiet follows when all operations
  // in progress are over. PRECOND: the handler of an operation runs.
  void End() { ended_ = true; }

 private:
  // The last call to the object. It may destroy the object.
  virtual void OnQuiet() = 0;

  void CloseIfQuiet() {
    if (ended_ && num_under_way_ == 0) OnQuiet();
  }

  int num_under_way_ = 0;  // tags that gRPC holds
  bool ended_ = false;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_CALL_LIFETIME_H_
