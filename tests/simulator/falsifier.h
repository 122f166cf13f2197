// Stands between a router and its world, and plants the router's bugs there. Changes the commands
// of the router's engines and the replies to them, as if the bug were in the engines.
#ifndef TANDEM_TESTS_SIMULATOR_FALSIFIER_H_
#define TANDEM_TESTS_SIMULATOR_FALSIFIER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "services/router/fleet/fleet.h"
#include "tests/simulator/scenario/planted_bug.h"
#include "tests/simulator/scenario/scenario.h"
#include "tests/simulator/scenario/seeded_random.h"
#include "tests/simulator/worker/fake_worker.h"

namespace tandem::simulator {

class Falsifier {
 public:
  // `scenario` must outlive the falsifier.
  Falsifier(PlantedBug bug, const Scenario* scenario)
      : bug_(bug), scenario_(scenario), random_(scenario->seed) {}

  EngineOptions Options(EngineOptions options) const;
  void ChangeCommands(const Fleet& fleet, EngineCommands* commands);
  // Changes the reply that the router gets, and returns the session from which it gets the reply.
  SessionId ChangeReply(SessionId session, WorkerReply* reply);
  // Returns a reply that the router gets after its commands were taken.
  std::optional<std::pair<SessionId, v1::VerifierReply>> TakeRepeated();
  bool ForgetsCancel() const { return bug_ == PlantedBug::kCancelForgotten; }
  double ChangeDeadline(double deadline, double now) const;

 private:
  // The commands that one worker of a pod got.
  struct Peer {
    SessionId session = 0;
    uint64_t batch = 0;
    std::map<uint32_t, v1::SlotPoint> ends;        // last command by slot, with the length after it
    std::map<uint32_t, const ClientPlan*> owners;  // owners of the slots
    std::map<const ClientPlan*, uint32_t> told;    // number of rows that the worker was sent
  };
  Peer& PeerOf(PeerId peer, SessionId session) { return peers_[{PodOf(session), peer}]; }
  // PRECOND: the router opened the session.
  Peer& PeerOf(SessionId session) { return PeerOf(peer_ids_.at(session), session); }
  template <typename Item>
  void ChangeItem(Worker worker, Peer* peer, Item* item);
  void ChangePropose(const Fleet& fleet, Peer* peer, v1::Propose* propose);
  void ChangeVerify(const Fleet& fleet, Peer* peer, v1::Verify* verify);
  void ChangePaths(v1::VerifyReply* reply) const;
  void UseOldProposal(v1::VerifyItem* item) const;
  void ChangeWrite(CallId call, v1::GenerateResponse* response);
  void ChangeUpdates(Peer* peer, v1::UpdateSlots* update);
  // Returns a command that rolls back the rows that the Verify is about to judge.
  std::optional<SendToDrafter> RollBackUnjudged(SessionId session, const v1::VerifierCommand& sent);
  const ClientPlan* PlanOf(Peer* peer, const v1::SlotPoint& at, const v1::SlotOpen* open);

  PlantedBug bug_;
  const Scenario* scenario_;
  SeededRandom random_;
  std::map<std::pair<uint32_t, PeerId>, Peer> peers_;  // by pod and number
  std::map<SessionId, PeerId> peer_ids_;               // by session
  std::map<CallId, int32_t> last_tokens_;
  std::set<CallId> recovering_;
  std::set<uint32_t> ended_on_sibling_;  // slots whose last path left the first child of each token
  std::map<uint32_t, std::vector<int32_t>> sent_parents_;        // in the last Verify, by slot
  std::map<uint32_t, std::vector<v1::SelfProposal>> proposals_;  // the last two, by slot
  std::optional<v1::VerifierReply> last_verdict_;
  std::optional<std::pair<SessionId, v1::VerifierReply>> repeated_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_FALSIFIER_H_
