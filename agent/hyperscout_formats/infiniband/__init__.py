"""Readers of ibnetdiscover, ibqueryerrors, sysfs, node maps and perftest."""
