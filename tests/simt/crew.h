// The fibers on which the threads of a block run (Boost.Context). One runs at a time, and gives the
// turn to another. They are kept from launch to launch, because making one costs more than running
// a short kernel on it.
#ifndef TANDEM_TESTS_SIMT_CREW_H_
#define TANDEM_TESTS_SIMT_CREW_H_

#include <boost/context/fiber.hpp>

#include <functional>
#include <vector>

namespace simt {

class Crew {
 public:
  static constexpr unsigned kMostMembers = 1024;   // threads of a block
  static constexpr unsigned kHome = kMostMembers;  // the number of the caller of Run

  Crew();
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Gives the turn to the member `first` of `num_members`. Returns when the turn comes home, with
  // no member in the middle of its work. A member that gets the turn for the first time, or for the
  // first time after it ended its work, calls `work`, which returns whose turn is next.
  void Run(const std::function<unsigned()>& work, unsigned num_members, unsigned first);

  // Gives the turn to another member. Returns when it is this member's turn again. PRECOND: called
  // within `work`, with the number of another member.
  void Switch(unsigned to);

  unsigned current() const { return current_; }

 private:
  // A stack, and what AddressSanitizer must be told of it.
  struct Context {
    boost::context::fiber fiber;  // empty while it runs, and before it is made
    void* fake_stack = nullptr;
    const void* stack_bottom = nullptr;
    size_t stack_size = 0;
  };

  boost::context::fiber Make(unsigned number);
  // Runs on the fiber of a member. Returns the fiber that runs after its end.
  boost::context::fiber Live(unsigned number, boost::context::fiber&& from);
  // Tells AddressSanitizer that a fiber is left for ever (null) or for a while.
  static void Leave(void** fake_stack, const Context& to);
  // Notes where the turn came from.
  void Arrive(void* fake_stack, boost::context::fiber&& from);

  std::vector<Context> contexts_;  // by number; the last one is home
  const std::function<unsigned()>* work_ = nullptr;
  unsigned current_ = kHome;
  unsigned previous_ = kHome;  // who gave the turn to the current one
  bool ends_ = false;
};

}  // namespace simt

#endif  // TANDEM_TESTS_SIMT_CREW_H_
