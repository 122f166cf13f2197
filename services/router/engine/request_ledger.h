// What is one for all engines of a router: a request may go from one to another.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_LEDGER_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_LEDGER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>

#include "services/router/audit/audit_monitor.h"

namespace tandem {

struct RequestLedger {
  std::unordered_set<std::string> request_ids;  // queued and running
  // Prompts that killed verifiers, the newest last: by hash, until when.
  std::deque<std::pair<uint64_t, double>> quarantine;
  uint64_t last_order = 0;  // of admissions
  AuditMonitor audit;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_LEDGER_H_
