// The places for a server's connections, and the connection that gives way to a new one.
#ifndef TANDEM_COMMON_ADMIN_CONNECTION_PLACES_H_
#define TANDEM_COMMON_ADMIN_CONNECTION_PLACES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tandem {

// There is one number of places for all connections, and a smaller number for each peer. If no
// place is left, the connection that has waited longest for a request gives way. A peer that only
// holds connections open therefore locks nobody out. A connection that is being answered stays. Not
// thread-safe.
class ConnectionPlaces {
 public:
  using Place = uint64_t;  // the place of one connection; a number is never used again

  ConnectionPlaces(int most, int most_of_peer) : most_(most), most_of_peer_(most_of_peer) {}

  struct Room {
    bool is_there = false;           // a place is free, after `gives_way` has left
    std::optional<Place> gives_way;  // nullopt: no connection must leave
  };
  // Finds a place for one more connection from the address `peer`. With an empty `peer`, only the
  // number of all places counts.
  Room RoomFor(const std::string& peer) const;

  // Takes a place for a new connection, which waits for a request.
  Place Take(const std::string& peer);
  // Frees the place. Called once or more for each connection.
  void Leave(Place place) { taken_.erase(place); }

  // The connection is being answered, or waits for a request, from now on. Does nothing if the
  // place was left.
  void Waits(Place place);
  void IsAnswered(Place place);

 private:
  struct Connection {
    std::string peer;
    uint64_t waits_since = 0;  // number in the order of waiting; 0: is being answered
  };

  const int most_;
  const int most_of_peer_;
  uint64_t last_number_ = 0;
  std::map<Place, Connection> taken_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_ADMIN_CONNECTION_PLACES_H_
