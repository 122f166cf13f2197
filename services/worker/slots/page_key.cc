#include "services/worker/slots/page_key.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace tandem {
namespace {

KvPageKey Sha256(const void* data, size_t size) {
  KvPageKey digest;
  EVP_Digest(data, size, digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

}  // namespace

KvPageKey FirstPageKey(std::string_view salt) { return Sha256(salt.data(), salt.size()); }

KvPageKey NextPageKey(const KvPageKey& previous, std::span<const int32_t> token_ids) {
  std::array<uint8_t, sizeof(KvPageKey) + kPageRows * sizeof(int32_t)> message;
  auto* out = std::copy(previous.begin(), previous.end(), message.begin());
  for (const int32_t id : token_ids.first(kPageRows)) {
    for (int shift = 0; shift < 32; shift += 8) {
      *out++ = static_cast<uint8_t>(static_cast<uint32_t>(id) >> shift);
    }
  }
  return Sha256(message.data(), message.size());
}

}  // namespace tandem
