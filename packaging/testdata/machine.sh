#!/bin/sh
# Boots a machine: the root folder of this one, of which nothing is changed, in namespaces, with systemd. It runs the steps in $1/steps.sh
# and powers off. $1 is /mnt there, $2 is the Envoy. What the machine has changed is below /media there.
set -e
share=$1 envoy=$2
root=$share/root
mkdir -p "$root"
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir up work m proc
mount -t overlay overlay -o lowerdir=/,upperdir="$root/up",workdir="$root/work" m
# What is not the machine's own can be read only: the kernel is shared.
mount -t proc proc proc
mount -t proc proc m/proc
mount --bind m/proc/sys m/proc/sys
mount -o remount,bind,ro m/proc/sys
mount --bind proc/sys/net m/proc/sys/net
mount -t sysfs -o ro sysfs m/sys
mount -t cgroup2 cgroup2 m/sys/fs/cgroup
mount -t tmpfs tmpfs m/run
mount -t tmpfs -o mode=1777 tmpfs m/tmp
mount -t tmpfs -o mode=755 tmpfs m/dev
for d in null zero full random urandom tty; do
  touch "m/dev/$d"
  mount --bind "/dev/$d" "m/dev/$d"
done
mkdir m/dev/pts m/dev/shm
chmod 1777 m/dev/shm
mount -t devpts devpts m/dev/pts
ln -s /proc/self/fd m/dev/fd
touch "$share/console" m/dev/console
mount --bind "$share/console" m/dev/console
mount --bind "$share" m/mnt
touch m/mnt/envoy
mount --bind "$envoy" m/mnt/envoy
mount --bind up m/media

units=m/run/systemd/system
mkdir -p "$units"
for unit in systemd-sysctl.service systemd-modules-load.service systemd-remount-fs.service systemd-update-utmp.service systemd-random-seed.service \
  systemd-journal-flush.service systemd-udevd.service systemd-udev-trigger.service networking.service modprobe@.service systemd-sysusers.service; do
  ln -s /dev/null "$units/$unit"
done
cat > "$units/steps.service" <<X
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'exec sh /mnt/steps.sh >/mnt/steps.log 2>&1'
ExecStopPost=/usr/bin/systemctl --no-block poweroff --force
X
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=steps.service\n' > "$units/steps.target"
exec chroot m env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --unit=steps.target --log-target=console
