/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's look at the registry of an image, through the daemon. */
#include "plugin/ctl_doctor.h"

void doctor_check_registry(struct doctor *d)
{
	(void)d;
}
