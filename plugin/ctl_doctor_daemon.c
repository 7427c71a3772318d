/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's look at the daemon: does it answer, what does it say of itself,
 * what may it do, and does the service manager look after it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>

#include "base/io.h"
#include "plugin/config.h"
#include "plugin/ctl_client.h"
#include "plugin/ctl_doctor.h"
#include "plugin/ctl_text.h"

#define UNIT "verity-snapshotter"
#define PROC_FILE_MAX (1u << 20)
#define BUS_TIMEOUT_US (10 * 1000000ull)

DEFINE_OWNED(bus, sd_bus *, sd_bus_flush_close_unref)
DEFINE_OWNED(message, sd_bus_message *, sd_bus_message_unref)

/* ---- configuration and answer ---- */

static void check_config(struct doctor *d)
{
	owned(config) struct config *c = NULL;
	struct err e = ERR_INIT;

	(void)snprintf(d->containerd, sizeof(d->containerd), "%s",
		       "/run/containerd/containerd.sock");
	if (config_load(d->o->config, &c, &e) < 0) {
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "daemon.config",
				"the daemon does not start with it",
				"mend the line; see verity-snapshotter.toml(5)" },
			"the daemon's configuration is wrong: %s", e.msg);
	} else {
		doctor_ok(
			d, "daemon.config",
			"the daemon's configuration can be read, policy \"%s\"",
			policy_name(c->policy));
		(void)snprintf(d->containerd, sizeof(d->containerd), "%s",
			       c->containerd_address);
		if (c->policy == POLICY_NEVER_LAZY)
			doctor_add(
				d,
				&(struct finding){
					FINDING_WARN, "daemon.policy",
					"every image is downloaded whole before it runs",
					"policy = \"prefer-lazy\"" },
				"the policy is \"never-lazy\"");
	}
	if (d->o->containerd)
		(void)snprintf(d->containerd, sizeof(d->containerd), "%s",
			       d->o->containerd);
}

static void check_version(struct doctor *d)
{
	char version[CTL_CELL_MAX];

	ctl_get_text(d->status, "version", version, sizeof(version));
	if (!strcmp(version, VERSION))
		doctor_ok(d, "daemon.version",
			  "daemon and verityctl are both of version %s",
			  VERSION);
	else
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "daemon.version",
				"an upgrade takes effect when the daemon is restarted",
				"systemctl restart " UNIT },
			"the daemon is of version %s, verityctl of " VERSION,
			version);
}

static void check_answer(struct doctor *d)
{
	owned(buf) struct buf answer = { 0 };
	struct err e = ERR_INIT;

	(void)snprintf(d->root, sizeof(d->root), "%s", "/var/lib/" UNIT);
	(void)snprintf(d->address, sizeof(d->address), "%.100s%s", d->o->run,
		       "/snapshotter.sock");
	if (ctl_ask(d->o->run, "status\n", &answer, &d->status, &e) < 0) {
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "daemon.running",
				"without it no image can be pulled, and no container started, with this snapshotter",
				"systemctl enable --now " UNIT ".socket " UNIT
				".service\n"
				"journalctl -u " UNIT
				"    # says why it ended, if it did" },
			"the daemon cannot be asked: %s", e.msg);
		return;
	}
	d->pid = (pid_t)ctl_get_num(d->status, "pid");
	ctl_get_text(d->status, "root", d->root, sizeof(d->root));
	ctl_get_text(d->status, "address", d->address, sizeof(d->address));
	doctor_ok(d, "daemon.running",
		  "the daemon answers, pid %d, state in '%s'", (int)d->pid,
		  d->root);
	check_version(d);
}

/* ---- what it says of itself ---- */

static void check_view(struct doctor *d)
{
	struct json_object *view = ctl_get(d->status, "view");
	char reason[CTL_CELL_MAX];

	if (json_object_get_boolean(ctl_get(view, "mounted"))) {
		doctor_ok(d, "daemon.view", "layers are shown at '%s/l'",
			  d->root);
		return;
	}
	ctl_get_text(view, "reason", reason, sizeof(reason));
	doctor_add(d,
		   &(struct finding){
			   FINDING_PROBLEM, "daemon.view",
			   "every image is downloaded whole before it runs",
			   "modprobe fuse; ls -l /dev/fuse\n"
			   "systemctl restart " UNIT },
		   "the daemon shows no layers: %s", reason);
}

static void check_features(struct doctor *d)
{
	struct json_object *list;
	size_t n = ctl_get_array(d->status, "features", &list);

	for (size_t i = 0; i < n; i++) {
		struct json_object *f = json_object_array_get_idx(list, i);
		char name[64], state[64], why[CTL_CELL_MAX], check[128];

		ctl_get_text(f, "name", name, sizeof(name));
		ctl_get_text(f, "state", state, sizeof(state));
		ctl_get_text(f, "why", why, sizeof(why));
		(void)snprintf(check, sizeof(check), "kernel.%s", name);
		if (!strcmp(state, "on"))
			doctor_ok(d, check, "kernel feature '%s' is used",
				  name);
		else if (!strcmp(state, "auto"))
			doctor_add(d,
				   &(struct finding){ FINDING_UNKNOWN, check,
						      NULL, NULL },
				   "kernel feature '%s' was not needed yet",
				   name);
		else if (!strcmp(state, "off"))
			doctor_add(
				d,
				&(struct finding){
					FINDING_WARN, check, why,
					"start the daemon without that name in --without" },
				"kernel feature '%s' is switched off", name);
		else if (!strcmp(state, "absent"))
			doctor_add(d,
				   &(struct finding){ FINDING_WARN, check, why,
						      "use a newer kernel" },
				   "kernel feature '%s' is missing", name);
	}
}

static void check_broken(struct doctor *d)
{
	struct json_object *list;
	size_t n = ctl_get_array(d->status, "broken", &list);
	char name[CTL_CELL_MAX];

	if (n == 0)
		return;
	ctl_get_text(json_object_array_get_idx(list, 0), "container", name,
		     sizeof(name));
	doctor_add(
		d,
		&(struct finding){
			FINDING_PROBLEM, "daemon.broken",
			"what they read of their images fails",
			"restart those containers; verityctl status names all" },
		"%zu containers stand on layers of an earlier daemon, '%s' first",
		n, name);
}

/* ---- what it may do ---- */

/* Capabilities of the unit file that something fails without. */
static const struct {
	unsigned bit;
	const char *name;
} needed_caps[] = {
	{ 0, "CAP_CHOWN" },           { 1, "CAP_DAC_OVERRIDE" },
	{ 2, "CAP_DAC_READ_SEARCH" }, { 3, "CAP_FOWNER" },
	{ 21, "CAP_SYS_ADMIN" },
};

static void check_caps(struct doctor *d, const char *proc_status)
{
	const char *line = strstr(proc_status, "\nCapEff:");
	char missing[160] = "";
	size_t len = 0;
	uint64_t caps;

	if (!line)
		return;
	caps = strtoull(line + 8, NULL, 16);
	for (size_t i = 0; i < ARRAY_LEN(needed_caps); i++)
		if (!(caps >> needed_caps[i].bit & 1) && len < sizeof(missing))
			len += (size_t)snprintf(missing + len,
						sizeof(missing) - len, " %s",
						needed_caps[i].name);
	if (!len)
		doctor_ok(d, "daemon.caps",
			  "the daemon has the capabilities that it needs");
	else
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "daemon.caps",
				"it cannot mount, or not keep owners and modes",
				"CapabilityBoundingSet= as in the unit that came with it; start it as root" },
			"the daemon lacks%s", missing);
}

static size_t count_fds(pid_t pid)
{
	char path[64];
	owned(dir) DIR *dir = NULL;
	size_t n = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	return n > 2 ? n - 2 : 0;
}

/* Below it, a busy node's open bodies and connections do not fit. */
#define FDS_WANTED 65536

static void check_fds(struct doctor *d, const char *limits)
{
	static const char fix[] = "LimitNOFILE=1048576    # [Service] of " UNIT
				  ".service, then systemctl daemon-reload and "
				  "restart";
	const char *line = strstr(limits, "Max open files");
	unsigned long long max;
	size_t used = count_fds(d->pid);

	if (!line)
		return;
	/* "unlimited" is no number; the kernel has a ceiling anyway. */
	max = strtoull(line + 14, NULL, 10);
	if (max && used * 10 > max * 9)
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "daemon.fds",
				"reads and pulls will fail when none is left",
				fix },
			"the daemon has %zu of %llu file descriptors open",
			used, max);
	else if (max && max < FDS_WANTED)
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "daemon.fds",
				"with many images in use reads and pulls will fail",
				fix },
			"the daemon may open only %llu files", max);
	else
		doctor_ok(d, "daemon.fds",
			  "the daemon has %zu file descriptors open, of %llu",
			  used, max);
}

static void check_process(struct doctor *d)
{
	owned(mem) char *status = NULL, *limits = NULL;
	char path[64];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)d->pid);
	r = read_file_at(AT_FDCWD, path, PROC_FILE_MAX, &status, NULL);
	if (r == 0) {
		(void)snprintf(path, sizeof(path), "/proc/%d/limits",
			       (int)d->pid);
		r = read_file_at(AT_FDCWD, path, PROC_FILE_MAX, &limits, NULL);
	}
	if (r < 0) {
		doctor_add(d,
			   &(struct finding){
				   FINDING_UNKNOWN, "daemon.process",
				   "its limits and capabilities are not known",
				   "run this as root, and not in a container" },
			   "process %d cannot be looked at: %s", (int)d->pid,
			   strerror(-r));
		return;
	}
	check_caps(d, status);
	check_fds(d, limits);
}

/* ---- its unit ---- */

/* Over the bus, or past it, as systemctl does. */
static int open_bus(sd_bus **ret)
{
	sd_bus *bus = NULL;
	int r = sd_bus_open_system(&bus);

	if (r >= 0) {
		*ret = bus;
		return 0;
	}
	r = sd_bus_new(&bus);
	if (r >= 0)
		r = sd_bus_set_address(bus, "unix:path=/run/systemd/private");
	if (r >= 0)
		r = sd_bus_start(bus);
	if (r < 0) {
		sd_bus_unref(bus);
		return r;
	}
	*ret = bus;
	return 0;
}

static int unit_property(sd_bus *bus, const char *unit, const char *name,
			 char *out, size_t size)
{
	owned(message) sd_bus_message *m = NULL;
	owned(mem) char *text = NULL;
	const char *path;
	int r = sd_bus_call_method(bus, "org.freedesktop.systemd1",
				   "/org/freedesktop/systemd1",
				   "org.freedesktop.systemd1.Manager",
				   "LoadUnit", NULL, &m, "s", unit);

	if (r >= 0)
		r = sd_bus_message_read(m, "o", &path);
	if (r >= 0)
		r = sd_bus_get_property_string(
			bus, "org.freedesktop.systemd1", path,
			"org.freedesktop.systemd1.Unit", name, NULL, &text);
	if (r < 0)
		return r;
	(void)snprintf(out, size, "%s", text);
	return 0;
}

static void judge_unit(struct doctor *d, const char *load, const char *active,
		       const char *enabled)
{
	static const char by_hand[] =
		"it is not started again when it ends, nor after a boot";

	if (strcmp(load, "loaded") != 0)
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "daemon.unit", by_hand,
				"make install, systemctl daemon-reload, systemctl enable --now " UNIT
				".socket " UNIT ".service" },
			UNIT ".service is not installed (%s)", load);
	else if (strcmp(active, "active") != 0)
		doctor_add(d,
			   &(struct finding){ d->status ? FINDING_WARN
							: FINDING_PROBLEM,
					      "daemon.unit", by_hand,
					      "systemctl status " UNIT
					      "; journalctl -u " UNIT "\n"
					      "systemctl start " UNIT },
			   UNIT ".service is %s%s", active,
			   d->status ? ", the daemon was started by hand" : "");
	else if (strncmp(enabled, "enabled", 7) != 0)
		doctor_add(
			d,
			&(struct finding){ FINDING_WARN, "daemon.unit",
					   "it will not be there after a boot",
					   "systemctl enable " UNIT },
			UNIT ".service is active, but %s", enabled);
	else
		doctor_ok(d, "daemon.unit",
			  UNIT ".service is active and enabled");
}

static void check_unit(struct doctor *d)
{
	char load[64], active[64], enabled[64];
	owned(bus) sd_bus *bus = NULL;
	int r;

	/* The unit is that of the daemon in the usual place. */
	if (sd_booted() <= 0 || strcmp(d->o->run, "/run/" UNIT) != 0)
		return;
	r = open_bus(&bus);
	if (r >= 0)
		r = sd_bus_set_method_call_timeout(bus, BUS_TIMEOUT_US);
	if (r >= 0)
		r = unit_property(bus, UNIT ".service", "LoadState", load,
				  sizeof(load));
	if (r >= 0)
		r = unit_property(bus, UNIT ".service", "ActiveState", active,
				  sizeof(active));
	if (r >= 0)
		r = unit_property(bus, UNIT ".service", "UnitFileState",
				  enabled, sizeof(enabled));
	if (r < 0)
		doctor_add(d,
			   &(struct finding){
				   FINDING_UNKNOWN, "daemon.unit",
				   "whether it survives a boot is not known",
				   "run this as root" },
			   "systemd cannot be asked: %s", strerror(-r));
	else
		judge_unit(d, load, active, enabled);
}

void doctor_check_daemon(struct doctor *d)
{
	check_config(d);
	check_answer(d);
	check_unit(d);
	if (!d->status)
		return;
	check_view(d);
	check_features(d);
	check_broken(d);
	if (d->pid > 0)
		check_process(d);
}
