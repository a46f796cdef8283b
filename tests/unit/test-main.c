#include "tests/unit/test-run.h"

int main(void)
{
        return test_run_all(NULL, NULL);
}
