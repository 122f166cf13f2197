// The keys under which a worker keeps pages of its KV cache for later requests.
#ifndef TANDEM_SERVICES_WORKER_SLOTS_PAGE_KEY_H_
#define TANDEM_SERVICES_WORKER_SLOTS_PAGE_KEY_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "common/model/kv/kv_page_pool.h"

namespace tandem {

// The key that precedes the first page of a sequence: SHA-256(salt). Sequences with different salts
// never share a page.
KvPageKey FirstPageKey(std::string_view salt);

// The key of a page: SHA-256(previous key; the page's token ids as little-endian 32-bit numbers).
// Equal keys thus mean equal tokens from the beginning of the sequence, and therefore equal rows
// (invariant 3). PRECOND: kPageRows ids.
KvPageKey NextPageKey(const KvPageKey& previous, std::span<const int32_t> token_ids);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SLOTS_PAGE_KEY_H_
