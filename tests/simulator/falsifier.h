// Stands between an engine and its world, and plants the router's bugs there: what the engine says
// or is told is changed as if the bug were in it.
#ifndef TANDEM_TESTS_SIMULATOR_FALSIFIER_H_
#define TANDEM_TESTS_SIMULATOR_FALSIFIER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "services/router/engine.h"
#include "tests/simulator/fake_worker.h"
#include "tests/simulator/planted_bug.h"
#include "tests/simulator/scenario.h"
#include "tests/simulator/seeded_random.h"

namespace tandem::simulator {

class Falsifier {
 public:
  // `scenario` must outlive it.
  Falsifier(PlantedBug bug, const Scenario* scenario)
      : bug_(bug), scenario_(scenario), random_(scenario->seed) {}

  EngineOptions Options(EngineOptions options) const;
  void ChangeCommands(Engine& engine, EngineCommands* commands);
  // The session, and the reply itself, that the engine gets instead.
  SessionId ChangeReply(Worker worker, SessionId session, WorkerReply* reply);
  // A reply that the engine gets after it took its commands.
  std::optional<std::pair<SessionId, v1::VerifierReply>> TakeRepeated();
  bool ForgetsCancel() const { return bug_ == PlantedBug::kCancelForgotten; }
  double ChangeDeadline(double deadline, double now) const;

 private:
  template <typename Item>
  void ChangeItem(Worker worker, Item* item);
  void ChangePropose(Engine& engine, v1::Propose* propose);
  void ChangeVerify(Engine& engine, v1::Verify* verify);
  void ChangeWrite(CallId call, v1::GenerateResponse* response);
  void ChangeCloses(v1::UpdateSlots* update);
  const ClientPlan* PlanOf(Worker worker, const v1::SlotPoint& at, const v1::SlotOpen* open);

  PlantedBug bug_;
  const Scenario* scenario_;
  SeededRandom random_;
  std::map<std::pair<Worker, uint32_t>, const ClientPlan*> owners_;  // of slots
  std::map<std::pair<Worker, const ClientPlan*>, uint32_t> told_;    // rows
  std::map<Worker, SessionId> sessions_;
  std::map<Worker, uint64_t> batches_;
  std::map<CallId, int32_t> last_tokens_;
  std::set<CallId> recovering_;
  std::optional<v1::VerifierReply> last_verdict_;
  std::optional<std::pair<SessionId, v1::VerifierReply>> repeated_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_FALSIFIER_H_
