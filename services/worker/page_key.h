// The names under which a worker keeps pages of its KV cache for later requests.
#ifndef TANDEM_SERVICES_WORKER_PAGE_KEY_H_
#define TANDEM_SERVICES_WORKER_PAGE_KEY_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "common/model/kv_page_pool.h"

namespace tandem {

// What comes before the first page of a sequence: SHA-256(salt). Sequences of different salts never
// share a page.
KvPageKey FirstPageKey(std::string_view salt);

// SHA-256(previous; the page's token ids as little-endian 32-bit numbers). Equal keys thus mean
// equal tokens from the beginning of the sequence on, and with them equal rows: invariant 3.
// PRECOND: kPageRows ids.
KvPageKey NextPageKey(const KvPageKey& previous, std::span<const int32_t> token_ids);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_PAGE_KEY_H_
