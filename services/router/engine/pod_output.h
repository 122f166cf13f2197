// Everything that a pod's engine hands out: commands, reports and counts.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_POD_OUTPUT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_POD_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/pod_report.h"
#include "services/router/engine/request_faults.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

struct PodOutput {
  EngineCommands commands;
  PodReports reports;
  Counts counts;

  // `summary`: as of LogLine, for lines with what a worker says (WorkerText).
  void Log(LogLine::Level level, std::string text, std::string summary = {});
  // About the sequence in a slot. The line has the slot's epoch at `peer`. PRECOND: the slot has a
  // sequence.
  void LogSlot(const Slots& slots, LogLine::Level level, uint32_t slot_id, std::string text,
               std::string summary = {}, PeerId peer = kVerifierPeer);

  // The request ended. PRECOND: the sequence has left its slot.
  void ReportFinished(std::unique_ptr<Sequence> sequence, const absl::Status& status);
  // Others need the slot of the sequence, or its pages. PRECOND: the sequence has left its slot.
  void ReportPreempted(std::unique_ptr<Sequence> sequence);
  // The verifier died while it computed a prompt, or got further with it than one that died.
  void ReportPrompt(const PromptDeaths& prompt);
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_POD_OUTPUT_H_
