// Tests that the object of a call is destroyed when gRPC has given back the last of its tags, in
// every order of tags.
#include "common/rpc/call_lifetime.h"

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tandem {
namespace {

// Tags that gRPC would hold, by name.
struct HeldTag {
  std::string name;
  void* tag;
};
using HeldTags = std::vector<HeldTag>;

// A call with every kind of operation that the real ones have. It opens, reads and writes up to two
// messages each, learns that the client is gone, limits its time with an alarm, and finishes. It
// destroys itself when it is quiet, so that the sanitizers see any later use.
class ToyCall final : public CallLifetime {
 public:
  ToyCall(HeldTags* held, int* num_quiet) : held_(held), num_quiet_(num_quiet) {
    // gRPC gives this tag back only if the call opens.
    done_tag_ = done_.tag();
    Hold("open", open_.Begin());
  }

 private:
  void Hold(const std::string& name, void* tag) { held_->push_back({name, tag}); }

  void OnOpened(bool ok) {
    if (!ok) return End();
    done_.Expect();
    Hold("done", done_tag_);
    Hold("alarm", alarm_.Begin());
    Hold("read", read_.Begin());
    Hold("write", write_.Begin());
  }
  void OnRead(bool ok) {
    if (!ok || ++num_read_ == 2) return Finish();
    Hold("read", read_.Begin());
  }
  void OnWritten(bool ok) {
    if (ok && ++num_written_ < 2 && !finishing_) Hold("write", write_.Begin());
  }
  void OnDone(bool /*ok*/) { Finish(); }
  void OnAlarm(bool is_due) {
    if (is_due) Finish();
  }
  void Finish() {
    if (finishing_) return;
    finishing_ = true;
    Hold("finish", finish_.Begin());
  }
  void OnFinished(bool /*ok*/) { End(); }

  void OnQuiet() override {
    ++*num_quiet_;
    delete this;
  }

  HeldTags* held_;
  int* num_quiet_;
  void* done_tag_ = nullptr;
  int num_read_ = 0;
  int num_written_ = 0;
  bool finishing_ = false;
  Operation<ToyCall> open_{this, &ToyCall::OnOpened};
  Operation<ToyCall> read_{this, &ToyCall::OnRead};
  Operation<ToyCall> write_{this, &ToyCall::OnWritten};
  Operation<ToyCall> done_{this, &ToyCall::OnDone};
  Operation<ToyCall> alarm_{this, &ToyCall::OnAlarm};
  Operation<ToyCall> finish_{this, &ToyCall::OnFinished};
};

// One possible course of a call: the choices in order, each with its number of options.
struct Choices {
  std::vector<size_t> made;
  std::vector<size_t> of;
  size_t next = 0;

  size_t Choose(size_t count) {
    if (next == made.size()) {
      made.push_back(0);
      of.push_back(count);
    }
    return made[next++];
  }
  // Moves to the next course that was not tried yet. Returns false if there is none.
  bool Advance() {
    next = 0;
    while (!made.empty() && ++made.back() == of.back()) {
      made.pop_back();
      of.pop_back();
    }
    return !made.empty();
  }
};

TEST(CallLifetimeTest, ACallGoesAfterItsLastTagInEveryOrderAndWithEveryOutcome) {
  Choices choices;
  size_t num_ways = 0;
  do {
    HeldTags held;
    int num_quiet = 0;
    std::string way;
    new ToyCall(&held, &num_quiet);  // destroys itself
    while (!held.empty()) {
      ASSERT_EQ(num_quiet, 0) << "gRPC still holds tags:" << way;
      const size_t choice = choices.Choose(2 * held.size());
      const HeldTag given_back = held[choice / 2];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(choice / 2));
      const bool ok = choice % 2 == 0;
      way += " " + given_back.name + (ok ? "" : "!");
      static_cast<AsyncTag*>(given_back.tag)->Proceed(ok);
    }
    ASSERT_EQ(num_quiet, 1) << way;
    ++num_ways;
  } while (choices.Advance());
  EXPECT_GT(num_ways, 1000u) << "there are many orders";
}

// A call that lives on between its operations, for example because its answer is computed
// elsewhere.
class AnsweredLater final : public CallLifetime {
 public:
  explicit AnsweredLater(bool* quiet) : quiet_(quiet) {}
  void* Open() { return open_.Begin(); }
  void* Answer() { return finish_.Begin(); }
  bool is_finishing() const { return finish_.under_way(); }

 private:
  void OnOpened(bool /*ok*/) {}
  void OnFinished(bool /*ok*/) { End(); }
  void OnQuiet() override { *quiet_ = true; }

  bool* quiet_;
  Operation<AnsweredLater> open_{this, &AnsweredLater::OnOpened};
  Operation<AnsweredLater> finish_{this, &AnsweredLater::OnFinished};
};

void GiveBack(void* tag) { static_cast<AsyncTag*>(tag)->Proceed(true); }

TEST(CallLifetimeTest, ACallThatHasNotEndedStaysWithoutAnyTag) {
  bool quiet = false;
  AnsweredLater call(&quiet);
  GiveBack(call.Open());
  EXPECT_FALSE(quiet);
  void* tag = call.Answer();
  EXPECT_TRUE(call.is_finishing());
  EXPECT_FALSE(quiet);
  GiveBack(tag);
  EXPECT_FALSE(call.is_finishing());
  EXPECT_TRUE(quiet);
}

// A call with two alarms of a real completion queue. The first alarm ends the call.
class TwoAlarms final : public CallLifetime {
 public:
  TwoAlarms(grpc::CompletionQueue* queue, bool* quiet) : quiet_(quiet) {
    soon_.Set(queue, gpr_now(GPR_CLOCK_MONOTONIC), soon_operation_.Begin());
    late_.Set(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), late_operation_.Begin());
  }

 private:
  void OnSoon(bool /*ok*/) {
    End();
    late_.Cancel();
  }
  void OnLate(bool is_due) { EXPECT_FALSE(is_due); }
  void OnQuiet() override {
    *quiet_ = true;
    delete this;
  }

  bool* quiet_;
  grpc::Alarm soon_;
  grpc::Alarm late_;
  Operation<TwoAlarms> soon_operation_{this, &TwoAlarms::OnSoon};
  Operation<TwoAlarms> late_operation_{this, &TwoAlarms::OnLate};
};

TEST(CallLifetimeTest, ACanceledAlarmKeepsItsCallUntilTheQueueGivesItBack) {
  grpc::CompletionQueue queue;
  bool quiet = false;
  new TwoAlarms(&queue, &quiet);  // destroys itself
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  static_cast<AsyncTag*>(tag)->Proceed(ok);
  EXPECT_FALSE(quiet);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  static_cast<AsyncTag*>(tag)->Proceed(ok);
  EXPECT_TRUE(quiet);
  queue.Shutdown();
  EXPECT_FALSE(queue.Next(&tag, &ok));
}

}  // namespace
}  // namespace tandem
