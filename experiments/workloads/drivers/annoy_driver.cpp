/*
 * Builds an index of points in groups with Annoy, saves nothing, and searches for the neighbours of points between
 * the groups; prints a checksum of the neighbours found.
 *
 * Usage: annoy_driver POINTS
 * Exit status: 0 fine, 1 a point does not find itself, 2 bad arguments.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "annoylib.h"
#include "kissrandom.h"

namespace neighbours {

constexpr int dimensions = 24;
constexpr int trees = 6;
constexpr int groups = 16;

/* Numbers between 0 and 1 that are the same on every machine. */
class Generator {
public:
    explicit Generator(std::uint64_t seed) : state_(seed) {}
    float next()
    {
        state_ = state_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return static_cast<float>(state_ >> 40) / 16777216.0f;
    }

private:
    std::uint64_t state_;
};

using Index = Annoy::AnnoyIndex<int, float, Annoy::Euclidean, Annoy::Kiss64Random,
                                Annoy::AnnoyIndexSingleThreadedBuildPolicy>;

std::vector<float> point(Generator &generator, int group)
{
    std::vector<float> found(dimensions);
    for (int axis = 0; axis < dimensions; axis++)
        found[axis] = static_cast<float>((group >> axis % 4) & 1) + 0.25f * generator.next();
    return found;
}

}  // namespace neighbours

int main(int argc, char **argv)
{
    char *end = nullptr;
    const long points = argc == 2 ? std::strtol(argv[1], &end, 10) : 0;
    if (argc != 2 || *end != '\0' || points < 10 || points > 10000000) {
        std::fputs("usage: annoy_driver POINTS\n", stderr);
        return 2;
    }
    neighbours::Generator generator(1);
    neighbours::Index index(neighbours::dimensions);
    index.set_seed(7);
    for (int number = 0; number < points; number++)
        index.add_item(number, neighbours::point(generator, number % neighbours::groups).data());
    index.build(neighbours::trees);
    std::uint64_t checksum = 1469598103934665603u;
    for (int number = 0; number < points; number += 3) {
        std::vector<int> found;
        std::vector<float> distances;
        index.get_nns_by_item(number, 10, -1, &found, &distances);
        if (found.empty() || found[0] != number) {
            std::fprintf(stderr, "point %d does not find itself\n", number);
            return 1;
        }
        for (int neighbour : found)
            checksum = (checksum ^ static_cast<std::uint64_t>(neighbour)) * 1099511628211u;
    }
    std::printf("%ld points, checksum %016llx\n", points, static_cast<unsigned long long>(checksum));
    return 0;
}
