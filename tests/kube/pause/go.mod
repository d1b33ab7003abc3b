// What holds a pod's namespaces in tests/lab; see ../assets.py.
module hyperscout.io/tests/kube/pause

go 1.26.0
