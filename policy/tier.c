#include "policy/tier.h"

bool tier_takes(double worth, uint64_t bytes, double other_worth, uint64_t other_bytes)
{
        return worth * (double)other_bytes >= other_worth * (double)bytes;
}
