// Objects that a completion queue hands back. Each knows what to do next.
#ifndef TANDEM_COMMON_RPC_ASYNC_TAG_H_
#define TANDEM_COMMON_RPC_ASYNC_TAG_H_

namespace tandem {

// The loop of every thread that polls a grpc::CompletionQueue:
//   while (queue.Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
// A tag is given to gRPC as `static_cast<AsyncTag*>(…)`, because gRPC keeps a void*.
struct AsyncTag {
  virtual void Proceed(bool ok) = 0;

 protected:
  ~AsyncTag() = default;
};

// A tag that calls a member function of its owner. The owner has one for each kind of operation.
template <typename Owner>
class MemberTag final : public AsyncTag {
 public:
  MemberTag(Owner* owner, void (Owner::*method)(bool ok)) : owner_(owner), method_(method) {}
  void Proceed(bool ok) override { (owner_->*method_)(ok); }
  void* get() { return static_cast<AsyncTag*>(this); }

 private:
  Owner* owner_;
  void (Owner::*method_)(bool ok);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_ASYNC_TAG_H_
