#!/bin/busybox sh
# The first process of the machine: what a system has, then inside.sh, then the end.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root LANG=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmp /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
chown user:user /home/user
ip link set lo up
sh /inside.sh $(cat /tests)
poweroff -f
